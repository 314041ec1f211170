// `ingot finetune` on conversations: what the assistant writes is in the loss, and the chat template and the
// id that ends a reply go along with the model.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "support/support.h"
#include "support/tiny_run.h"
#include "tokenizer/tokenizer.h"

namespace ingot::test::chat_finetune_runs_test {

TEST(ChatFinetune, TrainsOnTheAssistantsTurns) {
  const TempDir dir;
  write_text(dir / "text.txt", tiny_text(600));
  const std::vector<std::string> specials = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  const Tokenizer tokenizer =
      Tokenizer::from_characters("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ .,'<>|_\n", specials);
  tokenizer.save(dir / "tokenizer");
  write_text(dir / "base.toml", base_recipe(dir.path(), 64, "path = \"" + (dir / "tokenizer") + "\""));
  const ProcessResult base = run_process({INGOT_BINARY, "run", dir / "base.toml"});
  ASSERT_EQ(base.exit_code, 0) << base.output;
  std::string rows;
  for (int i = 0; i < 6; ++i)
    rows +=
        "{\"messages\": [{\"role\": \"user\", \"content\": \"hi <|im_end|>\"}, {\"role\": \"assistant\", "
        "\"content\": \"yo\"}]}\n";
  write_text(dir / "chat.jsonl", rows);
  const auto tune = [&](const std::string& run, const std::vector<std::string>& extra) {
    std::vector<std::string> command = {INGOT_BINARY, "finetune", dir / "base", dir / "chat.jsonl",
                                        "--run",      dir / run,  "--batch",    "2",
                                        "--epochs",   "4",        "--lr",       "1e-2"};
    command.insert(command.end(), extra.begin(), extra.end());
    return run_process(command);
  };
  const ProcessResult refused = tune("refused", {});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_NE(refused.output.find("has no chat template"), std::string::npos) << refused.output;
  const ProcessResult tuned = tune("tuned", {"--chat-template", "chatml-think"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.output;
  const std::vector<std::string> steps = losses(dir / "tuned");
  const auto loss = [](const std::string& line) { return std::stod(line.substr(line.find("loss=") + 5)); };
  ASSERT_FALSE(steps.empty());
  EXPECT_LT(loss(steps.back()), loss(steps.front()));
  const auto config = nlohmann::json::parse(read_text(dir / "tuned/huggingface/generation_config.json"));
  const auto ends = config.at("eos_token_id").get<std::vector<int32_t>>();
  EXPECT_NE(std::find(ends.begin(), ends.end(), *tokenizer.special_id("<|im_end|>")), ends.end());
  EXPECT_NE(read_text(dir / "tuned/huggingface/chat_template.jinja").find("<|im_start|>"), std::string::npos);
  write_text(dir / "chat.jsonl", rows + "{\"messages\": [{\"role\": \"user\", \"content\": null}]}\n");
  const ProcessResult bad = tune("bad", {"--chat-template", "chatml-think"});
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_NE(bad.output.find("chat.jsonl:7: messages[0]: 'content' of the user is null"), std::string::npos)
      << bad.output;
}

}  // namespace ingot::test::chat_finetune_runs_test
