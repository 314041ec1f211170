// See packed_model.h.
#include "infer/packed_model.h"

#include <cstring>

#include "checkpoint/model_state.h"
#include "exchange/random_model.h"
#include "infer/generator.h"
#include "nn/lora.h"
#include "ops/cca/cca.h"
#include "tensor/pages.h"

namespace ingot {
namespace {

/// Routers and adapters are small, and what they do is not.
bool may_round(const ParameterSpec& spec) {
  const ParamRole r = spec.role;
  return !is_adapter(spec.name) && (r == ParamRole::matrix || r == ParamRole::expert ||
                                    r == ParamRole::embedding || r == ParamRole::head);
}

}  // namespace

/// What forward passes on the null device read each parameter for: over a whole document, as evaluation does,
/// and over a cached sequence.
std::vector<PackedModel::Use> PackedModel::uses_of(const Model& model) {
  struct EveryNode final : TapeObserver {  // for a tape that does not record, caches being for inference only
    void tensor(const std::string&, const Tensor&) override {}
  } every_node;
  std::vector<Use> uses(static_cast<size_t>(model.weights().size()));
  SequenceStore store(sequence_layout(model), 1);
  SequenceState sequence = store.create();
  const Tensor one(nullptr, {1}, DType::i32, DeviceKind::null);
  for (SequenceState* state : {static_cast<SequenceState*>(nullptr), &sequence}) {
    CountingArena arena;
    Tape tape(arena, {.device = DeviceKind::null, .record = false, .observer = &every_node});
    const BatchLayout rows{1, {{0, 1, 0, state}}};
    Context c{tape, model.weights(), &rows, tape.leaf(one)};
    model.equip(c);
    model.decoder().logits(c, model.decoder().forward(c, tape.leaf(one)).hidden_TD);
    for (const Node& node : tape.nodes())
      for (size_t slot = 0; slot < node.inputs.size(); ++slot) {
        const int parameter = node.inputs[slot] < 0 ? -1 : tape.meta_of(node.inputs[slot]).second;
        if (parameter < 0) continue;
        const std::string_view op = node.op->name;
        Use& use = uses[static_cast<size_t>(parameter)];
        const bool by_f32 = slot == cca_input::kGrouped && op == "cca";
        if (by_f32 || (slot == 1 && (op == "linear" || op == "grouped_linear"))) {
          use.other |= use.product && use.f32_rows != by_f32;  // no form serves both
          use.product = true, use.f32_rows = by_f32;
        } else if (slot == 1 && op == "embedding") {
          use.look_up = true;
        } else {
          use.other = true;
        }
      }
  }
  return uses;
}

PackedModel::PackedModel(const ModelConfig& config, const Precision& precision, bool int8)
    : model_(std::make_unique<Model>(config, precision, Placement{}, Backing::sparse)),
      int8_(int8),
      uses_(uses_of(*model_)) {
  for (int i = 0; i < model_->weights().size(); ++i) ask_huge_pages(model_->weights().master(i));
}

PackedModel::PackedModel(const StoredModel& stored, std::optional<WeightForm> form)
    : PackedModel(stored.config,
                  form == WeightForm::f32    ? Precision::f32()
                  : form == WeightForm::bf16 ? Precision::bf16()
                                             : stored.precision,
                  form == WeightForm::int8) {
  load_model(stored.reader, *model_, [&](int i) { take(i); });
}

PackedModel::PackedModel(const Model& from, WeightForm form)
    : PackedModel(from.config(),
                  form == WeightForm::f32    ? Precision::f32()
                  : form == WeightForm::bf16 ? Precision::bf16()
                                             : from.weights().precision(),
                  form == WeightForm::int8) {
  for (int i = 0; i < model_->weights().size(); ++i) {
    const Tensor to = model_->weights().master(i), values = from.weights().master(i);
    std::memcpy(to.data, values.data, static_cast<size_t>(to.bytes()));
    take(i);
  }
  if (from.config().moe.balance == BalanceRule::none) return;
  for (const int64_t layer : from.decoder().moe_layers()) {
    const Tensor to = model_->router_bias(layer), values = from.router_bias(layer);
    std::memcpy(to.data, values.data, static_cast<size_t>(to.bytes()));
  }
}

PackedModel::PackedModel(const ModelConfig& config, WeightForm form, uint64_t seed)
    : PackedModel(config, form == WeightForm::bf16 ? Precision::bf16() : Precision::f32(),
                  form == WeightForm::int8) {
  WeightSet& w = model_->weights();
  for (int i = 0; i < w.size(); ++i) {
    random_values(w.table()[i], seed, 0, w.master(i));
    take(i);
  }
}

void PackedModel::take(int i) {
  WeightSet& w = model_->weights();
  const ParameterSpec& spec = w.table()[i];
  const Use& use = uses_[static_cast<size_t>(i)];
  if (!use.product && !use.look_up && !use.other)
    return give_back_pages(w.master(i));  // read in training only
  const bool rounds = int8_ && use.packs() && may_round(spec);
  const Tensor name = w.compute(i);
  int64_t bytes = name.bytes();
  if (use.packs()) {
    const Tensor master = w.master(i);
    const DType read = !rounds && name.dtype() == DType::bf16 ? DType::f32_as_bf16 : master.dtype();
    const Shape& s = master.shape();
    const int64_t experts = s.rank() == 3 ? s[0] : 1, n = s[-2], k = s[-1];
    const DType stored = rounds ? DType::u8 : use.f32_rows ? DType::f32 : name.dtype();
    const PackedRegistration& place = places_.emplace_back(
        name.data, PackedWeights(master.data, read, stored, true, k, n, k, experts, n * k));
    bytes = place.weights().bytes();
    give_back_pages(master);
  } else if (w.has_copy(i)) {
    w.refresh_compute(i);
    give_back_pages(w.master(i));
  }
  bytes_ += bytes;
  const int64_t experts = spec.role == ParamRole::expert ? spec.shape[0] : 1;
  const int64_t read = experts > 1 ? model_->config().moe.top_k : 1;
  if (use.product || use.other) bytes_per_token_ += bytes / experts * read;
}

}  // namespace ingot
