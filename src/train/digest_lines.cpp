// See digest_lines.h.
#include "train/digest_lines.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/range.h"
#include "report/json_lines.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

std::string hex(uint64_t digest) {
  return fmt::format("{:016x}", digest);
}

uint64_t digest_of(const Json& j, const std::string& where) {
  uint64_t value = 0;
  const std::string text = j.is_string() ? j.get<std::string>() : "";
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (text.size() != 16 || error != std::errc() || end != text.data() + text.size() || hex(value) != text)
    fail("{}: not a line of digests: expected 16 hexadecimal digits", where);
  return value;
}

std::vector<uint64_t> digests_of(const Json& j, const std::string& where) {
  if (!j.is_array() || j.empty()) fail("{}: not a line of digests: expected one for each rank", where);
  std::vector<uint64_t> digests;
  for (const Json& d : j) digests.push_back(digest_of(d, where));
  return digests;
}

std::string text_at(const Json& j, const char* key, const std::string& where) {
  const auto found = j.find(key);
  if (found == j.end() || !found->is_string()) fail("{}: not a line of digests: no text \"{}\"", where, key);
  return found->get<std::string>();
}

int64_t number_at(const Json& j, const char* key, int64_t least, int64_t most, const std::string& where) {
  const auto found = j.find(key);
  const bool whole = found != j.end() && found->is_number_integer();
  // An unsigned number beyond int64 becomes negative here.
  const int64_t value = whole ? found->get<int64_t>() : -1;
  if (!whole || value < least || value > most)
    fail("{}: not a line of digests: \"{}\" is not a number from {} to {}", where, key, least, most);
  return value;
}

StepDigests step_digests(const Json& j, int64_t step, const std::string& where) {
  StepDigests digests{.step = step};
  if (j.contains("gradients")) digests.gradients = digests_of(j["gradients"], where);
  size_t ranks = digests.gradients.size();
  if (j.contains("copies")) {
    const Json& copies = j["copies"];
    if (!copies.is_object() || copies.size() != kCopyKinds)
      fail("{}: not a line of digests: \"copies\" are of {} kinds", where, kCopyKinds);
    for (const auto& kind : enum_names(CopyKind{})) {
      if (!copies.contains(kind.name)) fail("{}: not a line of digests: no \"{}\"", where, kind.name);
      const std::vector<uint64_t> of_kind = digests_of(copies[std::string(kind.name)], where);
      if (digests.copies.empty()) digests.copies.resize(of_kind.size());
      if (digests.copies.size() != of_kind.size()) fail("{}: not as many digests of each kind", where);
      for (size_t r = 0; r < of_kind.size(); ++r)
        digests.copies[r][static_cast<size_t>(kind.value)] = of_kind[r];
    }
    if (ranks > 0 && ranks != digests.copies.size()) fail("{}: not as many digests of each kind", where);
    ranks = digests.copies.size();
  }
  if (ranks == 0) fail("{}: not a line of digests: it has none", where);
  return digests;
}

}  // namespace

std::string to_json_line(const DigestStart& s) {
  const Json j{
      {"step", s.step},
      {"start", {{"ranks", s.ranks}, {"kernels", s.kernels}, {"layout", s.layout}, {"recipe", s.recipe}}}};
  return j.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string to_json_line(const StepDigests& d) {
  Json j;
  j["step"] = d.step;
  for (const uint64_t g : d.gradients) j["gradients"].push_back(hex(g));
  if (!d.copies.empty())
    for (const auto& kind : enum_names(CopyKind{})) {
      Json& of_kind = j["copies"][std::string(kind.name)] = Json::array();
      for (const auto& rank : d.copies) of_kind.push_back(hex(rank[static_cast<size_t>(kind.value)]));
    }
  return j.dump();
}

DigestLine parse_digest_line(std::string_view line, const std::string& where) {
  const Json j = parse_object_line(line, "line of digests", 4, where);
  const bool start = j.contains("start");
  const auto steps = static_cast<int64_t>(bounds::kSteps);
  const int64_t step = number_at(j, "step", start ? 0 : 1, steps, where);
  if (!start) return step_digests(j, step, where);
  const Json& s = j["start"];
  if (!s.is_object()) fail("{}: not a line of digests: \"start\" is no object", where);
  return DigestStart{.step = step,
                     .ranks = number_at(s, "ranks", 1, static_cast<int64_t>(bounds::kRanks), where),
                     .kernels = text_at(s, "kernels", where),
                     .layout = text_at(s, "layout", where),
                     .recipe = text_at(s, "recipe", where)};
}

int64_t step_of(const DigestLine& line) {
  return std::visit([](const auto& l) { return l.step; }, line);
}

RecordedDigests read_digests(FileSystem& fs, const std::string& path) {
  RecordedDigests all;
  if (!fs.exists(path)) return all;
  read_lines(fs, path, [&](std::string_view text, const std::string& where) {
    DigestLine line = parse_digest_line(text, where);
    if (auto* start = std::get_if<DigestStart>(&line)) return all.starts.push_back(std::move(*start));
    StepDigests& step = std::get<StepDigests>(line);
    if (all.starts.empty()) fail("{}: digests before any start", where);
    all.start_of[step.step] = all.starts.size() - 1;
    all.steps[step.step] = std::move(step);
  });
  return all;
}

std::optional<DigestDifference> difference(const StepDigests& then, const StepDigests& now) {
  const auto differing = [](size_t ranks, const auto& equal) {
    std::vector<int> found;
    for (size_t r = 0; r < ranks; ++r)
      if (!equal(r)) found.push_back(static_cast<int>(r));
    return found;
  };
  const auto compare = [&](const auto& left, const auto& right, const auto& of) {
    if (left.empty() || right.empty()) return std::vector<int>();
    INGOT_CHECK(left.size() == right.size(), "digests of {} and {} ranks", left.size(), right.size());
    return differing(left.size(), [&](size_t r) { return of(left[r]) == of(right[r]); });
  };
  std::vector<int> ranks = compare(then.gradients, now.gradients, [](uint64_t g) { return g; });
  if (!ranks.empty()) return DigestDifference{"gradients", std::move(ranks)};
  for (const auto& kind : enum_names(CopyKind{})) {
    const auto k = static_cast<size_t>(kind.value);
    ranks = compare(then.copies, now.copies, [&](const auto& rank) { return rank[k]; });
    if (!ranks.empty()) return DigestDifference{std::string(kind.name), std::move(ranks)};
  }
  return std::nullopt;
}

namespace {

using Holders = std::map<uint64_t, std::vector<int>>;  // of each digest, the ranks

/// Counts the votes of groups whose members must have one digest.
class Votes {
 public:
  /// Whether the members agree.
  bool count(const Holders& by_digest) {
    if (by_digest.size() == 1) return true;
    size_t copies = 0, most = 0;
    for (const auto& [digest, ranks] : by_digest) {
      copies += ranks.size();
      most = std::max(most, ranks.size());
    }
    const bool decided = 2 * most > copies;
    if (decided) fewest_ = fewest_ == 0 ? copies : std::min(fewest_, copies);
    for (const auto& [digest, ranks] : by_digest)
      if (!decided)
        undecided_[copies].insert(ranks.begin(), ranks.end());
      else if (ranks.size() < most)
        outvoted_.insert(ranks.begin(), ranks.end());
    return false;
  }
  /// A rank that a majority contradicts explains the ties that it is in, and a tie of few copies one of many.
  std::optional<Disagreement> result() const {
    if (outvoted_.empty() && undecided_.empty()) return std::nullopt;
    Disagreement found;
    found.named = !outvoted_.empty();
    const std::set<int>& ranks = found.named ? outvoted_ : undecided_.begin()->second;
    found.ranks.assign(ranks.begin(), ranks.end());
    found.copies = static_cast<int>(found.named ? fewest_ : undecided_.begin()->first);
    return found;
  }

 private:
  std::set<int> outvoted_;
  std::map<size_t, std::set<int>> undecided_;  // by the number of copies
  size_t fewest_ = 0;                          // copies that outvoted a rank
};

}  // namespace

std::optional<Disagreement> find_disagreement(const StepDigests& d,
                                              const std::array<std::vector<int>, kCopyKinds>& groups) {
  /// Whether the ranks of each group have one digest.
  const auto agree = [&](Votes& votes, CopyKind kind, size_t ranks, const auto& digest) {
    std::map<int, Holders> holders;  // by group
    for (size_t r = 0; r < ranks; ++r)
      holders[groups[static_cast<size_t>(kind)].at(r)][digest(r)].push_back(static_cast<int>(r));
    bool all = true;
    for (const auto& [group, by_digest] : holders) all = votes.count(by_digest) && all;
    return all;
  };
  Votes of_moments, of_all;
  agree(of_moments, CopyKind::state, d.moments.size(), [&](size_t r) { return d.moments[r].state; });
  agree(of_moments, CopyKind::expert_state, d.moments.size(),
        [&](size_t r) { return d.moments[r].expert_state; });
  std::vector<CopyKind> kinds;
  for (size_t k = 0; k < kCopyKinds; ++k) {
    const auto kind = static_cast<CopyKind>(k);
    if (!agree(of_all, kind, d.copies.size(), [&](size_t r) { return d.copies[r][k]; }))
      kinds.push_back(kind);
  }
  std::optional<Disagreement> found = of_all.result();
  if (std::optional<Disagreement> nearer = of_moments.result();
      nearer && (!found || !found->named || nearer->named))
    found = std::move(nearer);
  if (found) found->kinds = std::move(kinds);
  return found;
}

std::optional<Disagreement> find_disagreement(const std::vector<ShareDigest>& shares) {
  Votes votes;
  std::map<int, Holders> holders;  // by owner
  for (const ShareDigest& s : shares) holders[s.owner][s.digest].push_back(s.maker);
  for (const auto& [owner, by_digest] : holders) votes.count(by_digest);
  return votes.result();
}

}  // namespace ingot
