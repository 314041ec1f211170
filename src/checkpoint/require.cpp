// require_tensors of reader.h: one message for everything that does not fit.
#include <algorithm>
#include <set>

#include "checkpoint/reader.h"

namespace ingot {
namespace {

constexpr size_t kListed = 20;        // of each sort; the rest is counted
constexpr size_t kCandidates = 2000;  // names compared for a suggestion

/// Levenshtein distance.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j)
      diagonal =
          std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])}));
  }
  return row[b.size()];
}

/// The candidate that differs least, if by no more than a third of the name.
std::string nearest(const std::string& name, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = name.size() / 3 + 1;
  for (size_t i = 0; i < std::min(candidates.size(), kCandidates); ++i) {
    const size_t length_gap =
        std::max(name.size(), candidates[i].size()) - std::min(name.size(), candidates[i].size());
    if (length_gap >= best_distance || candidates[i].size() > 500) continue;
    if (const size_t distance = edit_distance(name, candidates[i]); distance < best_distance) {
      best = candidates[i];
      best_distance = distance;
    }
  }
  return best;
}

void append_list(std::string& message, const char* title, const std::vector<std::string>& lines) {
  if (lines.empty()) return;
  message += fmt::format("\n  {} {}:", lines.size(), title);
  for (size_t i = 0; i < std::min(lines.size(), kListed); ++i) message += "\n    " + lines[i];
  if (lines.size() > kListed) message += fmt::format("\n    and {} more", lines.size() - kListed);
}

}  // namespace

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
  const std::vector<std::string> candidates(unexpected.begin(), unexpected.end());
  std::vector<std::string> missing_lines, unexpected_lines;
  for (const ExpectedTensor* want : missing) {
    const std::string near = missing_lines.size() < kListed ? nearest(want->name, candidates) : "";
    missing_lines.push_back(fmt::format("'{}' {}{}", want->name, want->shape.str(),
                                        near.empty() ? "" : fmt::format(" (the checkpoint has '{}')", near)));
  }
  for (const std::string& name : candidates)
    unexpected_lines.push_back(fmt::format("'{}' {}", name, checkpoint.tensors().at(name).meta.shape.str()));
  std::string message = fmt::format("checkpoint '{}' does not fit this model", checkpoint.path());
  append_list(message, "missing from the checkpoint", missing_lines);
  append_list(message, "in the checkpoint, unknown to the model", unexpected_lines);
  append_list(message, "of another shape", misshapen);
  throw Error(
      message,
      "it belongs to another model or configuration: compare the run's resolved config with this one");
}

}  // namespace ingot
