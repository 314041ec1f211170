// See lora.h.
#include "nn/lora.h"

#include <algorithm>
#include <cmath>

#include "base/glob.h"

namespace ingot {
namespace {

bool can_have_one(const ParameterSpec& spec) {
  return spec.role == ParamRole::matrix && !spec.name.ends_with(".kv_up.weight") &&
         spec.name.find(".ahead.") == std::string::npos;
}

/// Blocks of rows that are matrices of their own.
std::vector<int64_t> blocks_of(const ParameterSpec& spec) {
  if (!spec.row_splits.empty()) return spec.row_splits;
  return spec.shard.dim == 0 && !spec.shard.blocks.empty() ? spec.shard.blocks
                                                           : std::vector<int64_t>{spec.shape[0]};
}

/// One pair beside weight `w`. A weight cut by rows (outputs) cuts B, one cut by columns cuts A; the other
/// half lies inside the sharded sublayer, so ranks have parts of its gradient.
void add_pair(const LoraConfig& lora, ParameterTable& table, int w) {
  const ParameterSpec spec = table[w];
  const std::string name = spec.name.substr(0, spec.name.size() - std::string(".weight").size());
  Adapter adapter{.scale = lora.scale(), .blocks = blocks_of(spec)};
  const auto blocks = static_cast<int64_t>(adapter.blocks.size());
  ParameterSpec a{name + ".lora_a",
                  {blocks * lora.rank, spec.shape[1]},
                  ParamRole::matrix,
                  Init::uniform(1 / std::sqrt(static_cast<double>(spec.shape[1])))};
  ParameterSpec b{name + ".lora_b", {spec.shape[0], lora.rank}, ParamRole::matrix, Init::constant(0)};
  a.row_splits.assign(static_cast<size_t>(blocks), lora.rank);
  b.row_splits = adapter.blocks;
  if (spec.shard.axis == ShardAxis::tensor) {
    (spec.shard.dim == 0 ? b : a).shard = spec.shard;
    (spec.shard.dim == 0 ? a : b).tensor_gradient = TensorGradient::partial;
  }
  a.layer_groups = b.layer_groups = spec.layer_groups;
  adapter.a = table.add(std::move(a));
  adapter.b = table.add(std::move(b));
  table.set_adapter(w, std::move(adapter));
}

}  // namespace

void validate_lora(const LoraConfig& lora, ConfigErrors& e) {
  if (lora.rank == 0 && (lora.alpha != 0 || !lora.targets.empty()))
    e.add("lora.rank", "is 0, so there are no adapters; set it, e.g. to 16");
}

void add_adapters(const LoraConfig& lora, ParameterTable& table) {
  if (lora.rank == 0) return;
  const int count = table.size();
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i)
    if (can_have_one(table[i])) names.push_back(table[i].name);
  const std::vector<std::string> targets =
      lora.targets.empty() ? std::vector<std::string>{"*"} : lora.targets;
  for (const std::string& pattern : targets)
    if (std::none_of(names.begin(), names.end(),
                     [&](const std::string& n) { return glob_match(pattern, n); }))
      throw Error(
          fmt::format("the pattern '{}' in model.lora.targets matches no matrix that can have an adapter",
                      pattern),
          "nearest names: " + nearest_to_pattern(pattern, names));
  for (int i = 0; i < count; ++i) {
    table.freeze(i);
    const bool wanted = can_have_one(table[i]) &&
                        std::any_of(targets.begin(), targets.end(),
                                    [&](const std::string& p) { return glob_match(p, table[i].name); });
    if (wanted) add_pair(lora, table, i);
  }
}

bool is_adapter(const std::string& name) {
  return name.ends_with(".lora_a") || name.ends_with(".lora_b");
}

}  // namespace ingot
