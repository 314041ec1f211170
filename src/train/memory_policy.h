// Which saved activations a run keeps, computes again or moves to disk: by name, or chosen for a limit of
// memory.
#pragma once
#include <string>
#include <vector>

#include "tape/node.h"

namespace ingot {

/// Policy from names. A name is "op" or "op.output", everywhere or in one module: "module/op",
/// "module/op.output"; or "module/": all that the module computes from the residual stream (the stream itself
/// stays, so that recomputation ends at the module's start: add_norm forms h from the stream alone). Modules are
/// the tape's segments: embed, attention, mlp, route, shared, dispatch, experts, combine, head, and stream: what
/// blocks hand on beside add_norm's streams (mixed streams, the state of ZAYA1's routers). Naming those, or
/// add_norm, chains the recomputation of blocks: all are alive at once. What both lists name is computed again.
/// Immutable.
class NamedPolicy final : public SlotPolicy {
 public:
  explicit NamedPolicy(const std::vector<std::string>& recompute,
                       const std::vector<std::string>& offload = {});
  SlotFate fate(const Op& op, int output, const Segment& segment) const override;
  bool empty() const { return recompute_.empty() && offload_.empty(); }
  bool offloads() const { return !offload_.empty(); }

 private:
  struct Name {
    std::string module, op, output;  ///< empty: any
  };
  static std::vector<Name> parse(const std::vector<std::string>& names, const char* field);
  static bool matches(const std::vector<Name>& names, const Op& op, int output, const Segment& segment);
  std::vector<Name> recompute_, offload_;
};

/// One step of the ladder that a limit of memory climbs: names to add, and what it costs in words.
struct PolicyRung {
  std::vector<std::string> recompute, offload;
  const char* cost;
};

/// From cheap to dear: element-wise results, feed-forward parts, attention, then the residual stream to disk.
const std::vector<PolicyRung>& policy_ladder();

/// Bytes of "16GiB", "512 MiB", "2e9" or "1.5GB"; Error that shows the forms. Empty text: 0.
int64_t parse_memory(const std::string& text, const std::string& field);

}  // namespace ingot
