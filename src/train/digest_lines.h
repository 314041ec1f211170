// Lines of digests.jsonl, what a run records of the bits that its ranks hold: one line for each start, one
// for each step that has digests. docs/guard.md shows them.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/enum.h"
#include "base/file_system.h"

namespace ingot {

inline constexpr const char* kDigestsFile = "digests.jsonl";

/// What several ranks hold alike. Of a kind a rank may have nothing; its digest is then 0.
enum class CopyKind : uint8_t {
  weights,       ///< but experts
  experts,       ///< their weights
  state,         ///< the optimizer's, of the weights; where these are sharded, with this rank's shard
  expert_state,  ///< the same of experts
  common         ///< counters, selection biases and loads of routers: alike on all ranks
};
constexpr auto enum_names(CopyKind) {
  return names_in_order<CopyKind>("weights", "experts", "state", "expert_state", "common");
}
inline constexpr size_t kCopyKinds = 5;

/// What the digests that follow depend on beside the numbers.
struct DigestStart {
  int64_t step = 0;  ///< that the start continues from
  int64_t ranks = 1;
  std::string kernels = {}, layout = {};
  std::string recipe = {};  ///< TOML, as the ranks run it
  bool operator==(const DigestStart&) const = default;
};

/// Of the optimizer's moments alone, which `state` and `expert_state` hold beside sharded weights.
struct MomentDigests {
  uint64_t state = 0, expert_state = 0;
  bool operator==(const MomentDigests&) const = default;
};

/// By rank, all of one length.
struct StepDigests {
  int64_t step = 0;
  std::vector<uint64_t> gradients = {};  ///< of each rank's own gradient before it is summed; empty: none
  std::vector<std::array<uint64_t, kCopyKinds>> copies = {};  ///< after the update, by CopyKind; empty: none
  std::vector<MomentDigests> moments = {};                    ///< beside copies; not recorded
  bool operator==(const StepDigests&) const = default;
};

/// One line without its newline.
std::string to_json_line(const DigestStart& start);
std::string to_json_line(const StepDigests& digests);
using DigestLine = std::variant<DigestStart, StepDigests>;
/// Throws Error on a line that to_json_line() cannot have written; `where` names the line in the message.
DigestLine parse_digest_line(std::string_view line, const std::string& where);
int64_t step_of(const DigestLine& line);

/// What a file holds, in order. `start` of a step: the last one before it.
struct RecordedDigests {
  std::vector<DigestStart> starts;
  std::map<int64_t, StepDigests> steps;
  std::map<int64_t, size_t> start_of;  ///< step -> index in starts
};
/// Leaves out damaged lines with a warning. Empty where there is no file.
RecordedDigests read_digests(FileSystem& fs, const std::string& path);

/// The first kind of digests that both have and that differ, and on which ranks.
struct DigestDifference {
  std::string what;  ///< "gradients", or the name of a CopyKind
  std::vector<int> ranks;
};
std::optional<DigestDifference> difference(const StepDigests& then, const StepDigests& now);

/// Ranks that hold other bits than those that must hold the same.
struct Disagreement {
  std::vector<int> ranks;  ///< ascending: those outvoted; where no bits have a majority, all that differ
  bool named = true;       ///< each of these ranks was outvoted
  int copies = 0;          ///< of what they hold; where ranks hold several things, the fewest
  std::vector<CopyKind> kinds;
};
/// groups[k][r]: which group of equal copies rank r belongs to for kind k. Nothing where all agree. Where
/// moments differ these name the ranks: gradients are summed to equal bits on all, so that a wrong moment
/// stays on its rank, while Muon takes it into the weights of all ranks that share the matrix.
std::optional<Disagreement> find_disagreement(const StepDigests& digests,
                                              const std::array<std::vector<int>, kCopyKinds>& groups);

/// What one rank computed of what is another's: digests of one owner must be equal.
struct ShareDigest {
  int maker = 0, owner = 0;
  uint64_t digest = 0;
};
/// The makers whose digests differ from most of one owner's, as above; `kinds` stays empty. Where one maker
/// has made two that differ, that one.
std::optional<Disagreement> find_disagreement(const std::vector<ShareDigest>& shares);

}  // namespace ingot
