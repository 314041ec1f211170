// `ingot eval`: the validation loss that the run reported, other weights, other text, and refusals.
#include <gtest/gtest.h>

#include <regex>

#include "support/tiny_run.h"

namespace ingot::test::eval_runs_test {

double number_in(const std::string& text, const std::string& before) {
  std::smatch found;
  if (!std::regex_search(text, found, std::regex(before + "([0-9.]+)"))) {
    ADD_FAILURE() << "no '" << before << "' in: " << text;
    return 0;
  }
  return std::stod(found[1]);
}

ProcessResult eval(const std::vector<std::string>& arguments) {
  std::vector<std::string> command{INGOT_BINARY, "eval"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run_process(command);
}

TEST(Eval, ScoresARunsValidationTextAndAnyOther) {
  const TempDir folder;
  write_text(folder / "text.txt", tiny_text(4000));
  write_text(folder / "recipe.toml", tiny_recipe(folder / "run", folder / "data", folder / "text.txt"));
  const ProcessResult trained = run_process({INGOT_BINARY, "run", folder / "recipe.toml"});
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  const std::string metrics = read_text(folder / "run/metrics.jsonl");
  const std::string all = metrics.substr(metrics.rfind("{", metrics.rfind("val/")));

  const ProcessResult own = eval({"--run", folder / "run"});
  ASSERT_EQ(own.exit_code, 0) << own.output;
  const double loss = number_in(own.output, "loss "), bits = number_in(own.output, "loss [0-9.]+, ");
  EXPECT_NEAR(loss, number_in(all, "val/[^/]*/loss\":"), 1e-5)
      << own.output << all;  // five digits are printed
  EXPECT_NEAR(bits, number_in(all, "bits_per_byte\":"), 1e-5) << own.output << all;

  // A weight is off by at most half of 1/127 of its block's largest: the loss moves, and little.
  const double rounded = number_in(eval({"--run", folder / "run", "--weights=int8"}).output, "loss ");
  EXPECT_NE(rounded, loss);
  EXPECT_NEAR(rounded, loss, 0.02 * loss);

  const ProcessResult other = eval({"--run", folder / "run", "--text", folder / "text.txt", "--sequence=8"});
  EXPECT_EQ(other.exit_code, 0) << other.output;
  EXPECT_GT(number_in(other.output, "loss "), 0.5) << other.output;
}

TEST(Eval, SaysWhatIsMissing) {
  const ProcessResult nothing = eval({});
  EXPECT_NE(nothing.exit_code, 0);
  EXPECT_NE(nothing.output.find("give MODEL"), std::string::npos) << nothing.output;
  const TempDir folder;
  const ProcessResult no_model = eval({folder.path()});
  EXPECT_NE(no_model.exit_code, 0);
  EXPECT_NE(no_model.output.find("is no model"), std::string::npos) << no_model.output;
  const ProcessResult no_run = eval({fixture("exchange/llama_text")});
  EXPECT_NE(no_run.exit_code, 0);
  EXPECT_NE(no_run.output.find("--text"), std::string::npos) << no_run.output;
}

}  // namespace ingot::test::eval_runs_test
