// Every op that a folder of src/ops declares is registered and has an op_check test.
#include "ops/registry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>

#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::test::registry_test {

namespace fs = std::filesystem;

const std::string kSource = INGOT_SOURCE_DIR;

/// Folders that need no op_check test, with the reason.
const std::map<std::string, std::string> kExempt = {
    {"sequence", "describes rows and rotations to the ops that look along the sequence; holds no op"},
    {"context", "needs a group of ranks and a share of each sequence: context_ranks_test.cpp"},
    {"collective", "needs a group of ranks, which a single call has not: collective_ranks_test.cpp"},
};

/// Every match of the pattern's first group in a folder's files with this ending.
std::set<std::string> matches(const fs::path& folder, const std::string& ending, const std::string& pattern) {
  const std::regex expression(pattern);
  std::set<std::string> found;
  for (const auto& f : fs::directory_iterator(folder)) {
    if (!f.path().string().ends_with(ending)) continue;
    const std::string text = read_text(f.path());
    for (std::sregex_iterator m(text.begin(), text.end(), expression), end; m != end; ++m)
      found.insert((*m)[1]);
  }
  return found;
}

/// Ops (name of the function that returns one, without "_op") by folder.
std::map<std::string, std::set<std::string>> declared() {
  std::map<std::string, std::set<std::string>> ops;
  for (const auto& f : fs::directory_iterator(kSource + "/src/ops"))
    if (f.is_directory()) ops[f.path().filename()] = matches(f.path(), ".h", R"(const Op& (\w+)_op\(\);)");
  return ops;
}

TEST(Registry, EveryFolderIsRegistered) {
  const auto listed = matches(kSource + "/src/ops", "/registry.cpp", R"(  op\((\w+)\))");
  size_t count = 0;
  for (const auto& [folder, ops] : declared()) {
    EXPECT_EQ(ops.empty(), folder == "sequence") << "src/ops/" << folder << " declares no op";
    for (const std::string& op : ops)
      EXPECT_EQ(listed.count(op), 1u) << op << " is not in src/ops/registry.cpp";
    count += ops.size();
  }
  EXPECT_EQ(all_ops().size(), count);
  EXPECT_GE(count, 17u);
}

TEST(Registry, EveryOpHasAnOpCheckTest) {
  std::set<std::string> tested;
  for (const auto& f : fs::directory_iterator(kSource + "/tests/ops")) {
    if (!f.path().string().ends_with("_test.cpp") ||
        read_text(f.path()).find("check_op(") == std::string::npos)
      continue;
    tested.merge(matches(f.path().parent_path(), f.path().filename(), R"(&(\w+)_op\(\))"));
  }
  const auto folders = declared();
  for (const auto& [folder, reason] : kExempt) {
    EXPECT_EQ(folders.count(folder), 1u) << folder << " is gone";
    EXPECT_FALSE(reason.empty());
  }
  for (const auto& [folder, ops] : folders)
    for (const std::string& op : ops)
      EXPECT_TRUE(kExempt.count(folder) > 0 || tested.count(op) > 0)
          << "no test calls check_op() with " << op;
  std::string ranks;  // what several ranks do together is tested there
  for (const auto& f : fs::directory_iterator(kSource + "/tests/ops"))
    if (f.path().string().ends_with("_ranks_test.cpp")) ranks += read_text(f.path());
  for (const char* folder : {"collective", "context"})
    for (const std::string& op : folders.at(folder))
      EXPECT_TRUE(std::regex_search(ranks, std::regex("\\b" + op + "[(,}]")))
          << "no test of ranks calls " << op;
}

TEST(Registry, OpsAreComplete) {
  std::set<std::string> names;
  for (const Op* op : all_ops()) {
    EXPECT_TRUE(names.insert(op->name).second) << "two ops are called " << op->name;
    ASSERT_FALSE(op->kernels.empty()) << op->name;
    EXPECT_STREQ(op->kernels.back().name, "reference") << op->name;
    const bool weight = std::any_of(op->inputs.begin(), op->inputs.end(),
                                    [](const InputSlot& i) { return i.kind == InputKind::weight; });
    const bool other = std::any_of(op->inputs.begin(), op->inputs.end(), [](const InputSlot& i) {
      return i.kind == InputKind::activation || i.kind == InputKind::parameter;
    });
    for (const Kernel& k : op->kernels) {
      EXPECT_NE(k.forward, nullptr) << op->name << " " << k.name;
      EXPECT_EQ(k.backward_weight != nullptr, weight) << op->name << " " << k.name;
      EXPECT_EQ(k.backward_input != nullptr, other) << op->name << " " << k.name;
    }
  }
}

}  // namespace ingot::test::registry_test
