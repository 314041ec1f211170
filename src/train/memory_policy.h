// Which saved activations a run keeps, recomputes, moves to disk or rounds to FP8: by name, or chosen for a
// limit of memory, for which nothing is rounded.
#pragma once
#include <string>
#include <vector>

#include "tape/node.h"
#include "train/memory_recipe.h"

namespace ingot {

/// A policy from names. A name is "op" or "op.output", everywhere or in one module ("module/op",
/// "module/op.output"); or "module/", which is all that the module computes from the residual stream; with
/// "@even" after it of layers 0, 2, 4, ... alone. The stream itself is kept, so that recomputing a module
/// begins at its start: add_norm forms h from the stream alone. Modules are the segments of the tape: embed,
/// attention, mlp, route, shared, dispatch, experts, combine, head, and stream, which is what blocks pass on
/// beside the streams of add_norm (mixed streams, the state of ZAYA1's routers). Recomputing those, or
/// add_norm, needs the block before: then all blocks are in memory at once. A value that several lists name
/// is recomputed, else it waits in FP8, else on disk. FP8 (ops/quantize) takes results that have gradients:
/// statistics that an op leaves for its own backward are kept, and so is what has no smaller form. Immutable.
class NamedPolicy final : public SlotPolicy {
 public:
  explicit NamedPolicy(const std::vector<std::string>& recompute,
                       const std::vector<std::string>& offload = {},
                       const std::vector<std::string>& fp8 = {});
  SlotFate fate(const Op& op, int output, const Segment& segment) const override;
  std::optional<PackedForm> fp8_form(const TensorMeta& value) const override;
  bool empty() const { return recompute_.empty() && offload_.empty() && fp8_.empty(); }
  bool offloads() const { return !offload_.empty(); }

 private:
  struct Name {
    std::string module, op, output;  ///< empty: any
    bool even = false;               ///< layers 0, 2, 4, ... alone
  };
  static std::vector<Name> parse(const std::vector<std::string>& names, const char* field);
  static bool matches(const std::vector<Name>& names, const Op& op, int output, const Segment& segment);
  std::vector<Name> recompute_, offload_, fp8_;
};

/// One of the levels that a limit of memory goes through: names to add, and what they cost in words.
struct PolicyLevel {
  std::vector<std::string> recompute, offload;
  const char* cost;
};

/// From cheap to expensive: element-wise results, attention's projections of every second layer, of all,
/// feed-forward modules, all of attention, then the residual stream to disk.
const std::vector<PolicyLevel>& policy_levels();
/// How many of them recompute; those after them move results to disk.
int64_t recompute_levels();

/// Adds names that are not there. One for all layers takes the place of its "@even".
void add_names(std::vector<std::string>& names, const std::vector<std::string>& more);
/// Whether some name is of every second layer.
bool names_even_layers(const MemoryConfig& memory);

/// Bytes of "16GiB", "512 MiB", "2e9" or "1.5GB"; 0 for empty text. Error, which shows these forms, for other
/// text; `field` is the key that it names.
int64_t parse_memory(const std::string& text, const std::string& field);

}  // namespace ingot
