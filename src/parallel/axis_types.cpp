// See axis_types.h.
#include "parallel/axis_types.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "ops/collective/collective.h"

namespace ingot {
namespace {

using enum AxisType;

struct Transition {
  const char* op;
  AxisType from, to;
};

/// Ops that change what their first input is.
constexpr Transition kTransitions[] = {
    {"copy_to_axis", replicate, varying},      {"reduce_from_axis", partial, replicate},
    {"reduce_scatter_rows", partial, varying}, {"all_gather_rows", varying, varying},
    {"merge_vocabulary", varying, replicate},  {"shard_index", replicate, varying},
    {"shard_rows", replicate, varying},
};
constexpr std::string_view kOnAnAxis[] = {"copy_to_axis", "reduce_from_axis", "reduce_scatter_rows", "all_gather_rows",
                                          "merge_vocabulary"};
/// Ops through which a sum may be drawn, in their activations.
constexpr std::string_view kSums[] = {"add", "low_rank"};

bool is_one_of(std::string_view name, std::span<const std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

class Walk {
 public:
  explicit Walk(const Context& c) : c_(c), table_(c.weights.table()) {
    for (int i = 0; i < table_.size(); ++i) parameters_[c.param(i).id()] = i;
  }

  AxisTypes run() {
    for (const Node& node : c_.tape.nodes()) {
      const AxisType type = type_of(node);
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        types_.values[node.outputs[i]] = type == varying && counts_rows(node, i) ? partial : type;
        if (node.differentiable && node.op->outputs[i].differentiable) moves_.insert(node.outputs[i]);
      }
    }
    return std::move(types_);
  }

 private:
  AxisType of(int32_t id) const {
    if (const auto p = parameters_.find(id); p != parameters_.end()) return is_cut(p->second) ? varying : replicate;
    const auto v = types_.values.find(id);
    return v != types_.values.end() ? v->second : replicate;  // leaves: the batch
  }
  bool is_cut(int p) const { return table_[p].shard.axis == ShardAxis::tensor; }

  AxisType type_of(const Node& node) {
    if (const Transition* t = transition(node)) {
      if (of(node.inputs[0]) != t->from) refuse(node, fmt::format("it takes a {} value", name_of(t->from)));
      return t->to;
    }
    bool any_varying = false, any_partial = false;
    for (const int32_t id : node.inputs) {
      if (id < 0) continue;
      any_varying |= of(id) == varying;
      any_partial |= of(id) == partial;
    }
    if (any_partial && !is_one_of(node.op->name, kSums)) refuse(node, "a sum over the ranks is missing");
    if (any_varying || any_partial) check_replicated(node);
    note_gradients(node, any_varying || any_partial);
    if (any_partial || contracts(node)) return partial;
    return any_varying ? varying : replicate;
  }

  const Transition* transition(const Node& node) const {
    if (is_one_of(node.op->name, kOnAnAxis) && static_cast<const CollectiveAttr*>(node.attr.data())->comm != c_.tensor)
      return nullptr;  // another axis
    for (const Transition& t : kTransitions)
      if (std::string_view(t.op) == node.op->name) return &t;
    return nullptr;
  }

  /// Counts over rows are summands where ranks have other rows.
  static bool counts_rows(const Node& node, size_t output) {
    return std::string_view(node.op->name) == "route" && std::string_view(node.op->outputs[output].name) == "counts";
  }

  /// A weight cut along the dimension over which the op sums.
  bool contracts(const Node& node) const {
    const std::string_view name = node.op->name;
    const int dim = name == "linear" ? 1 : name == "embedding" ? 0 : -1;
    if (dim < 0) return false;
    const auto p = parameters_.find(node.inputs[1]);
    return p != parameters_.end() && is_cut(p->second) && table_[p->second].shard.dim == dim;
  }

  void check_replicated(const Node& node) const {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const int32_t id = node.inputs[i];
      if (id >= 0 && moves_.count(id) > 0 && of(id) == replicate)
        refuse(node, fmt::format("copy_to_axis is missing before '{}', whose cotangent is a part", node.op->inputs[i].name));
    }
  }

  void note_gradients(const Node& node, bool parts) {
    for (const int32_t id : node.inputs) {
      const auto p = parameters_.find(id);
      if (p == parameters_.end() || !node.differentiable) continue;
      AxisType& known = types_.gradients.try_emplace(p->second, is_cut(p->second) ? varying : parts ? partial : replicate).first->second;
      if (!is_cut(p->second) && known != (parts ? partial : replicate))
        refuse(node, fmt::format("parameter '{}' is used among replicated values elsewhere", table_[p->second].name));
    }
  }

  [[noreturn]] void refuse(const Node& node, const std::string& why) const {
    std::string inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (node.inputs[i] >= 0)
        inputs += fmt::format("{}{} {}", inputs.empty() ? "" : ", ", node.op->inputs[i].name, name_of(of(node.inputs[i])));
    const Segment& s = c_.tape.segments()[static_cast<size_t>(node.segment)];
    fail("on the tensor axis: op '{}' of segment {} in layer {} ({}): {}", node.op->name, s.name, s.layer, inputs, why);
  }

  const Context& c_;
  const ParameterTable& table_;
  std::map<int32_t, int> parameters_;
  std::set<int32_t> moves_;  ///< activations that get a cotangent
  AxisTypes types_;
};

}  // namespace

const char* name_of(AxisType type) {
  static const char* const kNames[] = {"replicated", "varying", "partial"};
  return kNames[static_cast<int>(type)];
}

AxisTypes tensor_axis_types(const Context& c) {
  INGOT_CHECK(c.tensor != nullptr && c.tensor->size() > 1 && c.tape.options().record);
  return Walk(c).run();
}

}  // namespace ingot
