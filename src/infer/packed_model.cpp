// See packed_model.h.
#include "infer/packed_model.h"

#include <cstring>

#include "checkpoint/model_state.h"
#include "device/memory/pages.h"
#include "exchange/random_model.h"
#include "infer/engine.h"
#include "nn/lora.h"
#include "ops/cca/cca.h"

namespace ingot {
namespace {

/// Whether int8 may replace it. Routers and adapters are small, and the model is sensitive to their errors.
bool may_be_int8(const ParameterSpec& spec) {
  const ParamRole r = spec.role;
  return !is_adapter(spec.name) && (r == ParamRole::matrix || r == ParamRole::expert ||
                                    r == ParamRole::embedding || r == ParamRole::head);
}

void give_back(const Tensor& values) {
  give_back_pages(values.data, values.bytes());
}

}  // namespace

/// Runs forward passes on the null device, over a whole document (as evaluation does) and over a cached
/// sequence, and sees which ops read which parameter.
std::vector<PackedModel::Use> PackedModel::uses_of(const Model& model) {
  struct EveryNode final : TapeObserver {  // keeps the nodes of a tape that does not record: caches need that
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
          use.other |= use.product && use.f32_rows != by_f32;  // no one packing serves both
          use.product = true, use.f32_rows = by_f32;
        } else if (slot == 1 && op == "embedding") {
          use.lookup = true;
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
  for (int i = 0; i < model_->weights().size(); ++i) {
    const Tensor master = model_->weights().master(i);
    ask_huge_pages(master.data, master.bytes());
  }
}

PackedModel::PackedModel(const StoredModel& stored, std::optional<WeightForm> form)
    : PackedModel(stored.config,
                  form == WeightForm::f32    ? Precision::f32()
                  : form == WeightForm::bf16 ? Precision::bf16()
                                             : stored.precision,
                  form == WeightForm::int8) {
  load_model(stored.reader, *model_, [&](int i) { store(i); });
}

PackedModel::PackedModel(const Model& from, WeightForm form)
    : PackedModel(from.config(),
                  form == WeightForm::f32    ? Precision::f32()
                  : form == WeightForm::bf16 ? Precision::bf16()
                                             : from.weights().precision(),
                  form == WeightForm::int8) {
  copy_from(from);
}

void PackedModel::refresh(const Model& from) {
  INGOT_CHECK(from.weights().size() == model_->weights().size(), "another model");
  bytes_ = bytes_per_token_ = 0;
  copy_from(from);
  model_->weights().changed();
}

void PackedModel::copy_from(const Model& from) {
  for (int i = 0; i < model_->weights().size(); ++i) {
    const Tensor to = model_->weights().master(i), values = from.weights().master(i);
    std::memcpy(to.data, values.data, static_cast<size_t>(to.bytes()));
    store(i);
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
    store(i);
  }
}

/// Packs parameter i, whose master has been filled, or makes its compute copy, and frees the master.
void PackedModel::store(int i) {
  WeightSet& w = model_->weights();
  const ParameterSpec& spec = w.table()[i];
  const Use& use = uses_[static_cast<size_t>(i)];
  if (!use.product && !use.lookup && !use.other) return give_back(w.master(i));  // read in training only
  int64_t bytes = w.compute(i).bytes();
  if (use.packs()) {
    bytes = pack(i);
  } else if (w.has_copy(i)) {
    w.refresh_compute(i);
    give_back(w.master(i));
  }
  bytes_ += bytes;
  const int64_t experts = spec.role == ParamRole::expert ? spec.shape[0] : 1;
  const int64_t read = experts > 1 ? model_->config().moe.top_k : 1;
  if (use.product || use.other) bytes_per_token_ += bytes / experts * read;
}

/// Returns the bytes of the panels.
int64_t PackedModel::pack(int i) {
  WeightSet& w = model_->weights();
  const Tensor master = w.master(i);
  const DType compute = w.compute(i).dtype();
  const Shape& s = master.shape();
  const int64_t experts = s.rank() == 3 ? s[0] : 1, n = s[-2], k = s[-1];
  const bool int8 = int8_ && may_be_int8(w.table()[i]), round = !int8 && compute == DType::bf16;
  const DType stored = int8 ? DType::u8 : uses_[static_cast<size_t>(i)].f32_rows ? DType::f32 : compute;
  const PackedWeights::Source source{master.data, master.dtype(), round, true, k, n, k, experts, n * k};
  const auto known = packed_.find(i);
  if (known != packed_.end()) {
    known->second.weights.fill(source);
    give_back(master);
    return known->second.weights.bytes();
  }
  PackedParameter& p = packed_.emplace(i, PackedParameter{PackedWeights(source, stored), {}}).first->second;
  p.format = {int8 ? "packed int8" : stored == DType::bf16 ? "packed bf16" : "packed f32", &p.weights};
  w.set_format(i, &p.format);
  give_back(master);
  return p.weights.bytes();
}

}  // namespace ingot
