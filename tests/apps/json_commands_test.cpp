// --json of the commands that make or check models: what the text says, as one object.
#include <gtest/gtest.h>

#include "support/imported.h"

namespace ingot::test::json_commands_test {

using nlohmann::json;

TEST(JsonCommands, ModelsAreMadeAndChecked) {
  const TempDir dir;
  generation_fixture(dir, "llama");
  const auto made = [&](const std::string& command) {
    const ShellResult r = shell(dir, "$INGOT " + command);
    EXPECT_EQ(r.exit_code, 0) << command << "\n" << r.err;
    const json j = json::parse(r.out, nullptr, false);
    EXPECT_TRUE(j.is_object()) << command << " prints JSON alone: " << r.out;
    return j.is_object() ? j : json::object();
  };
  const json imported = made("import $DIR/llama $DIR/in --json");
  EXPECT_EQ(imported["checkpoint"], dir / "in/checkpoints/step-00000000");
  EXPECT_EQ(imported["family"], "llama");
  EXPECT_EQ(imported["parameters"].get<int64_t>() * 4, imported["bytes"].get<int64_t>());
  const json exported = made("export $DIR/in $DIR/hf --json");
  EXPECT_EQ(exported["format"], "hf");
  EXPECT_EQ(exported["out"], dir / "hf");
  EXPECT_EQ(exported["bytes"], imported["bytes"]);
  EXPECT_EQ(exported["tensors"], imported["tensors"]);
  EXPECT_EQ(made("average $DIR/in $DIR/hf -o $DIR/mean --json")["checkpoint"],
            dir / "mean/checkpoints/step-00000000");
  EXPECT_EQ(made("upcycle $DIR/in $DIR/moe --granularity 2 --top-k 2 --json")["out"], dir / "moe");
  const json verified = made("checkpoint verify $DIR/moe --json");
  EXPECT_EQ(verified["complete"], true);
  EXPECT_EQ(verified["step"], 0);
  const json reshaped =
      made("checkpoint reshape $DIR/in/checkpoints $DIR/re --ranks 2 --parallel.data=2 --json");
  EXPECT_EQ(reshaped["ranks"], 2);
  EXPECT_EQ(reshaped["bytes"], imported["bytes"]);
  EXPECT_LT(reshaped["largest_share"].get<int64_t>(), reshaped["bytes"].get<int64_t>());
  // Beside the text, in a file.
  const ShellResult both = shell(dir, "$INGOT export $DIR/in $DIR/again --json=$DIR/report.json");
  EXPECT_NE(both.out.find("20 tensors"), std::string::npos) << both.out;
  EXPECT_EQ(json::parse(read_text(dir / "report.json"))["out"], dir / "again");
}

}  // namespace ingot::test::json_commands_test
