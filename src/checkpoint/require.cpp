// require_tensors() of reader.h: one message that lists everything that does not fit.
#include <algorithm>
#include <set>

#include "base/config_node.h"
#include "checkpoint/reader.h"

namespace ingot {
namespace {

constexpr size_t kCandidates = 2000;  // names that are compared with a missing one for a suggestion

}  // namespace

void append_list(std::string& message, const char* title, const std::vector<std::string>& lines) {
  if (lines.empty()) return;
  message += fmt::format("\n  {} {}:", lines.size(), title);
  for (size_t i = 0; i < std::min(lines.size(), kListedFaults); ++i) message += "\n    " + lines[i];
  if (lines.size() > kListedFaults) message += fmt::format("\n    and {} more", lines.size() - kListedFaults);
}

void require_tensors(const CheckpointReader& checkpoint, const std::vector<ExpectedTensor>& expected,
                     const std::vector<TensorKind>& kinds) {
  std::set<std::string> unexpected;
  for (const auto& [name, tensor] : checkpoint.tensors())
    if (std::find(kinds.begin(), kinds.end(), tensor.kind) != kinds.end()) unexpected.insert(name);
  std::vector<const ExpectedTensor*> missing;
  std::vector<std::string> misshapen;
  for (const ExpectedTensor& want : expected) {
    const auto it = checkpoint.tensors().find(want.name);
    if (it == checkpoint.tensors().end())
      missing.push_back(&want);
    else if (!(it->second.meta.shape == want.shape))
      misshapen.push_back(fmt::format("'{}': expected {}, found {}", want.name, want.shape.str(),
                                      it->second.meta.shape.str()));
    unexpected.erase(want.name);
  }
  if (missing.empty() && unexpected.empty() && misshapen.empty()) return;
  std::vector<std::string> candidates(unexpected.begin(), unexpected.end());
  std::vector<std::string> missing_lines, unexpected_lines;
  for (const std::string& name : candidates)
    unexpected_lines.push_back(fmt::format("'{}' {}", name, checkpoint.tensors().at(name).meta.shape.str()));
  candidates.resize(std::min(candidates.size(), kCandidates));
  for (const ExpectedTensor* want : missing) {
    const std::string near = missing_lines.size() < kListedFaults ? nearest_name(want->name, candidates) : "";
    missing_lines.push_back(fmt::format("'{}' {}{}", want->name, want->shape.str(),
                                        near.empty() ? "" : fmt::format(" (the checkpoint has '{}')", near)));
  }
  std::string message = fmt::format("checkpoint '{}' does not fit this model", checkpoint.path());
  append_list(message, "missing from the checkpoint", missing_lines);
  append_list(message, "in the checkpoint, unknown to the model", unexpected_lines);
  append_list(message, "of another shape", misshapen);
  throw Error(
      message,
      "it belongs to another model or configuration: compare the run's resolved config with this one");
}

}  // namespace ingot
