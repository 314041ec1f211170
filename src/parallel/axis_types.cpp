// See axis_types.h.
#include "parallel/axis_types.h"

#include <algorithm>
#include <set>

namespace ingot {
namespace {

using enum AxisType;

/// One pass over a tape in the order in which it was recorded.
class Derivation {
 public:
  Derivation(const Context& c, const RankGroups& groups, const std::map<int32_t, ValueTypes>& received)
      : c_(c), groups_(groups), table_(c.weights.table()), axes_(groups.grid(), groups.options()) {
    for (int i = 0; i < table_.size(); ++i) parameters_[c.param(i).id()] = i;
    for (int a = 0; a < kAxes; ++a)
      divided_[static_cast<size_t>(a)] = axes_.size(static_cast<Axis>(a), groups.rank()) > 1;
    for (const Axis a : {Axis::data, Axis::context, Axis::context_inner})
      batch_.set(a, divided(a) ? rows : replicate);
    for (const auto& [id, types] : received) types_.values[id] = types, differentiable_.insert(id);
  }

  AxisTypes run() {
    for (const Node& node : c_.tape.nodes()) {
      node_ = &node;
      rule_ = &node.op->axis_rule;
      if (rule_->passes.empty())
        throw Error(
            fmt::format("op '{}' has no axis rule", node.op->name),
            "say in Op::axis_rule what it makes of values that ranks hold together (tape/axis_rule.h)");
      const ValueTypes out = types_of_outputs();
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        types_.values[node.outputs[i]] = counts(i) ? partial_counts(out) : out;
        if (node.differentiable && node.op->outputs[i].differentiable)
          differentiable_.insert(node.outputs[i]);
      }
    }
    return std::move(types_);
  }

 private:
  bool divided(Axis a) const { return divided_[static_cast<size_t>(a)]; }
  ValueTypes of(int32_t id) const {
    const auto v = types_.values.find(id);
    return v != types_.values.end() ? v->second : batch_;
  }
  int parameter(int32_t id) const {
    const auto p = parameters_.find(id);
    return p != parameters_.end() ? p->second : -1;
  }
  bool is_data(size_t input) const { return node_->op->inputs[input].kind == InputKind::data; }

  bool counts(size_t output) const {
    return std::find(rule_->counts.begin(), rule_->counts.end(), static_cast<int>(output)) !=
           rule_->counts.end();
  }
  /// Counts of rows are partial sums where ranks have other rows.
  static ValueTypes partial_counts(ValueTypes v) {
    for (const Axis a : {Axis::data, Axis::context, Axis::context_inner, Axis::tensor})
      if (v.on(a) == rows) v.set(a, partial);
    return v;
  }

  /// The types of the node's outputs.
  ValueTypes types_of_outputs() {
    read_inputs();
    const ValueTypes out = derive();
    record_gradients(out);
    const bool summed = out.experts && is_collective() && rule_->change.from == partial;
    const auto whole = [](AxisType t) { return t == rows || t == replicate; };
    return summed && std::all_of(out.types.begin(), out.types.end(), whole) ? in_view(out, false) : out;
  }

  /// The inputs' types in the view in which the op works. Data of another view say nothing about it.
  void read_inputs() {
    group_.clear();
    if (is_collective()) {
      const Communicator* group = rule_->group(node_->attr.data());
      if (group != nullptr && group->size() > 1) group_ = axes_of_group(*group, c_, groups_);
    }
    const bool sharded = rule_->on == AxisRule::On::experts && groups_.expert().size() > 1;
    experts_ = sharded || (!group_.empty() && is_of_experts(group_.front()));
    for (size_t i = 0; i < node_->inputs.size(); ++i)
      experts_ |= is_activation(i) && !is_data(i) && of(node_->inputs[i]).experts;
    inputs_.assign(node_->inputs.size(), {});
    for (size_t i = 0; i < node_->inputs.size(); ++i) {
      if (!is_activation(i)) continue;
      ValueTypes v = of(node_->inputs[i]);
      if (v.experts != experts_ && is_data(i)) v = {experts_, {}};
      inputs_[i] = v;
    }
    for (size_t i = 0; i < node_->inputs.size(); ++i)
      if (is_activation(i) && inputs_[i].experts != experts_) inputs_[i] = in_view(inputs_[i], experts_);
  }
  bool is_collective() const { return rule_->on == AxisRule::On::group_axes; }
  bool is_activation(size_t i) const { return node_->inputs[i] >= 0 && parameter(node_->inputs[i]) < 0; }

  ValueTypes derive() {
    ValueTypes out{experts_, {}};
    for (const Axis a : axes_of_view(experts_))
      if (divided(a)) out.set(a, type_on(a));
    return out;
  }

  /// Types of whole rows in the other view: two ranks have the same rows unless they differ on an axis of
  /// rows.
  ValueTypes in_view(const ValueTypes& v, bool experts) {
    ValueTypes out{experts, {}};
    const int me = groups_.rank();
    for (const Axis from : axes_of_view(v.experts))
      if (divided(from) && v.on(from) != rows && v.on(from) != replicate)
        refuse(from, "only rows that are whole go to the ranks of their experts, or come back");
    for (const Axis to : axes_of_view(experts)) {
      int other = 0, same = 0;
      for (const int r : axes_.ranks({&to, 1}, me)) {
        if (r == me) continue;
        bool differs = false;
        for (const Axis from : axes_of_view(v.experts))
          differs |= v.on(from) == rows && axes_.index(from, r) != axes_.index(from, me);
        ++(differs ? other : same);
      }
      if (other > 0 && same > 0) refuse(to, "some of its ranks have the same rows, some have others");
      out.set(to, other > 0 ? rows : replicate);
    }
    return out;
  }

  AxisType type_on(Axis a) {
    const AxisType in = joined(a);
    if (changes(a, in)) {
      if (!is(in, rule_->change.from, a)) refuse(a, wanted(rule_->change.from, in));
      return rule_->change.to;
    }
    check_data(a, in);
    if (const AxisRule::Sharding* sharding = sharding_of(a)) {
      if (!is(in, sharding->change.from, a)) refuse(a, wanted(sharding->change.from, in));
      const auto addend = static_cast<size_t>(rule_->addend);
      if (sharding->change.to == partial && rule_->addend >= 0 && node_->inputs.size() > addend &&
          node_->inputs[addend] >= 0 && axes_.index(a, groups_.rank()) > 0)
        refuse(a, fmt::format("'{}' is added to every partial sum: the first rank alone may",
                              node_->op->inputs[addend].name));
      return sharding->change.to;
    }
    if (in == partial && !rule_->passes.has(partial)) refuse(a, "a sum over the ranks is missing");
    if (!rule_->passes.has(in)) refuse(a, fmt::format("it cannot work on values that are {}", name_of(in)));
    if (in == rows && rule_->along_sequence && a != Axis::data)
      refuse(a, "it looks along sequences, of which each rank has some rows only");
    return in;
  }

  bool changes(Axis a, AxisType in) const {
    switch (rule_->on) {
      case AxisRule::On::nowhere:
        return false;
      case AxisRule::On::group_axes:
        return std::find(group_.begin(), group_.end(), a) != group_.end();
      case AxisRule::On::tensor:
        return a == Axis::tensor;
      case AxisRule::On::experts:
        return a == Axis::expert || a == Axis::nodes;
      case AxisRule::On::values:
        return in == rule_->change.from;
    }
    return false;
  }

  /// Data that all ranks have count as shared: nobody asks for their cotangent.
  bool is(AxisType found, AxisType wanted, Axis a) const {
    return found == wanted || (wanted == shared && found == replicate && !has_differentiable_replicate(a));
  }
  std::string wanted(AxisType type, AxisType found) const {
    const char* missing = found == partial                       ? ": a sum over the ranks is missing"
                          : type == shared && found == replicate ? ": copy_to_axis is missing"
                          : type == shared && found == rows      ? ": the other ranks' rows are missing"
                                                                 : "";
    return fmt::format("it takes values that are {}, not {}{}", name_of(type), name_of(found), missing);
  }

  bool is_differentiable_replicate(size_t i, Axis a) const {
    return is_activation(i) && differentiable_.count(node_->inputs[i]) > 0 && inputs_[i].on(a) == replicate;
  }
  bool has_differentiable_replicate(Axis a) const {
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (is_differentiable_replicate(i, a)) return true;
    return false;
  }

  /// The type of all activations together; where there are none, of the data.
  AxisType joined(Axis a) {
    bool activations = false;
    for (size_t i = 0; i < inputs_.size(); ++i) activations |= is_activation(i) && !is_data(i);
    AxisType all = replicate;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!is_activation(i) || is_data(i) == activations) continue;
      const AxisType t = inputs_[i].on(a);
      if (t == replicate || t == all) continue;
      if (all == replicate)
        all = t;
      else if ((all == shared && t == shards) || (all == shards && t == shared))
        all = shards;
      else
        refuse(a, all == partial || t == partial ? "a sum over the ranks is missing" : mixture(all, t));
    }
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (all == replicate || !is_differentiable_replicate(i, a)) continue;
      if (all == partial) refuse(a, "a sum over the ranks is missing");
      refuse(a, fmt::format("copy_to_axis is missing before '{}', whose cotangent is partial",
                            node_->op->inputs[i].name));
    }
    return all;
  }
  void check_data(Axis a, AxisType all) const {
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (is_activation(i) && is_data(i) && !fits(a, inputs_[i].on(a), all))
        refuse(a, mixture(all, inputs_[i].on(a)));
  }
  /// Sharded data belong to rows that all ranks have; positions of a halo are those of the rows. Counts of a
  /// data rank's own sequences may stand for themselves: its micro-batches are whole.
  static bool fits(Axis a, AxisType data, AxisType t) {
    if (a == Axis::data && data == partial && t == rows) return true;
    return data == replicate || data == shared || data == t || (data == shards && t == shared) ||
           (data == rows && t == halo);
  }
  static std::string mixture(AxisType a, AxisType b) {
    return fmt::format("values that are {} meet values that are {}", name_of(a), name_of(b));
  }

  /// The dimension along which a parameter is sharded over an axis; -1: the ranks have the same.
  int sharded_dim(int p, Axis a) const {
    const Placement& place = c_.weights.placement();
    const auto along = [&](const ShardRule& rule, ShardAxis axis) {
      return rule.axis == axis && place.size(axis) > 1 ? rule.dim : -1;
    };
    switch (a) {
      case Axis::tensor:
        return along(table_[p].shard, ShardAxis::tensor);
      case Axis::nodes:
      case Axis::expert:
        return along(table_[p].shard, ShardAxis::expert);
      case Axis::expert_tensor:
        return along(table_[p].width_shard, ShardAxis::expert_tensor);
      default:
        return -1;
    }
  }

  /// What sharded parameters make of the activations; nullptr: no parameter of the op is sharded over the
  /// axis.
  const AxisRule::Sharding* sharding_of(Axis a) {
    const AxisRule::Sharding* found = nullptr;
    for (size_t i = 0; i < node_->inputs.size(); ++i) {
      const int p = parameter(node_->inputs[i]), dim = p >= 0 ? sharded_dim(p, a) : -1;
      if (dim < 0) continue;
      const auto sharding = std::find_if(
          rule_->sharded.begin(), rule_->sharded.end(),
          [&](const AxisRule::Sharding& c) { return c.input == static_cast<int>(i) && c.dim == dim; });
      if (sharding == rule_->sharded.end() || (found != nullptr && found->change.to != sharding->change.to))
        refuse(a,
               fmt::format("'{}' cannot be sharded along dimension {} here", node_->op->inputs[i].name, dim));
      found = &*sharding;
    }
    return found;
  }

  void record_gradients(const ValueTypes& out) {
    for (const int32_t id : node_->inputs) {
      const int p = parameter(id);
      if (p < 0 || !node_->differentiable || !table_[p].trainable) continue;
      ValueTypes gradient{experts_, {}};
      for (const Axis a : axes_of_view(experts_))
        if (divided(a))
          gradient.set(a, sharded_dim(p, a) >= 0 ? shards : out.on(a) == replicate ? replicate : partial);
      const ValueTypes& known = types_.gradients.try_emplace(p, gradient).first->second;
      if (known == gradient) continue;
      Axis where = axes_of_view(experts_).front();
      for (const Axis a : axes_of_view(experts_))
        if (known.on(a) != gradient.on(a)) where = a;
      refuse(where, fmt::format("the gradient of parameter '{}' is of other types elsewhere ({})",
                                table_[p].name, known.str(axes_, groups_.rank())));
    }
  }

  [[noreturn]] void refuse(Axis a, const std::string& why) const {
    std::string inputs;
    for (size_t i = 0; i < node_->inputs.size(); ++i) {
      const int32_t id = node_->inputs[i];
      if (id < 0) continue;
      inputs += fmt::format("{}{}", inputs.empty() ? "" : ", ", node_->op->inputs[i].name);
      const int p = parameter(id);
      const bool of_view =
          inputs_[i].experts == is_of_experts(a) && (!is_data(i) || of(id).experts == experts_);
      if (p >= 0 || of_view)
        inputs += fmt::format(" {}", name_of(p < 0                    ? inputs_[i].on(a)
                                             : sharded_dim(p, a) >= 0 ? shards
                                                                      : replicate));
    }
    const Segment& s = c_.tape.segments()[static_cast<size_t>(node_->segment)];
    fail("on the {} axis: op '{}' of segment {} in layer {} ({}): {}", name_of(a), node_->op->name, s.name,
         s.layer, inputs, why);
  }

  const Context& c_;
  const RankGroups& groups_;
  const ParameterTable& table_;
  const Axes axes_;
  std::array<bool, kAxes> divided_ = {};
  ValueTypes batch_;
  std::map<int32_t, int> parameters_;
  std::set<int32_t> differentiable_;  ///< values that get a cotangent
  AxisTypes types_;
  // The present node:
  const Node* node_ = nullptr;
  const AxisRule* rule_ = nullptr;
  std::vector<Axis> group_;         ///< of a collective
  bool experts_ = false;            ///< the view in which it works
  std::vector<ValueTypes> inputs_;  ///< in that view
};

}  // namespace

std::string ValueTypes::str(const Axes& axes, int rank) const {
  std::string text;
  for (const Axis a : axes_of_view(experts))
    if (axes.size(a, rank) > 1)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name_of(a), name_of(on(a)));
  return text;
}

AxisTypes axis_types(const Context& c, const RankGroups& groups,
                     const std::map<int32_t, ValueTypes>& received) {
  INGOT_CHECK(c.tape.options().record, "only a tape that records has types");
  return Derivation(c, groups, received).run();
}

}  // namespace ingot
