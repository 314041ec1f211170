// The small models of tests/fixtures/generation as imports, and the program's two streams.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::test {

/// The result of a shell command in which $INGOT is the program and $DIR a folder; standard output and error
/// apart.
struct ShellResult {
  int exit_code = -1;
  std::string out, err;
  nlohmann::json json() const { return nlohmann::json::parse(out); }
};
ShellResult shell(const TempDir& dir, const std::string& command);

/// A copy of a fixture of tests/fixtures/generation ("llama", "zaya") in dir/name.
std::string generation_fixture(const TempDir& dir, const std::string& name);
/// Replaces the values of one tensor of dir/name/model.safetensors by `value`.
void fill_tensor(const std::string& folder, const std::string& tensor, float value);

}  // namespace ingot::test
