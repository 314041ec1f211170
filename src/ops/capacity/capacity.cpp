// See capacity.h: the op's description, and its CPU kernel: slots by expert in token order (a counting
// sort), then a partial sort of the crowded experts.
#include "ops/capacity/capacity.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "ops/common.h"
#include "ops/gpu_registry.h"

namespace ingot {
namespace {

void infer(const OpCall& call, std::span<TensorMeta> out) {
  const Tensor &probs = call.in[0], &ids = call.in[1];
  INGOT_CHECK(probs.shape().rank() == 2 && ids.shape() == probs.shape() && ids.dtype() == DType::i32 &&
                  call.attr<CapacityAttr>().factor > 0,
              "probs {} ids {}", probs.meta.str(), ids.meta.str());
  out[0] = probs.meta;
  out[1] = ids.meta;
  out[2] = {Shape{1}, DType::f32};
}

OpCost cost(const OpCall& call) {
  return {0, 0, 0, tensor_bytes(call)};
}

std::string print(const void* attr_data) {
  const auto& a = *static_cast<const CapacityAttr*>(attr_data);
  return fmt::format("{} experts, factor {} by {}", a.experts, a.factor, name_of(a.drop));
}

/// Integers in descending order of the weights, both zeros equal, NaN last.
int64_t order_of(float weight) {
  weight += 0.0f;
  if (weight != weight) return INT64_MAX;
  int32_t bits;
  std::memcpy(&bits, &weight, sizeof(bits));
  return -static_cast<int64_t>(bits < 0 ? bits ^ INT32_MAX : bits);
}

/// Slots of all experts, expert by expert in token order; starts[e] is where those of e begin.
struct Slots {
  std::vector<int64_t> starts;
  std::vector<int32_t> slot;
};

Slots by_expert(const int32_t* ids, int64_t count, int32_t experts) {
  Slots s{std::vector<int64_t>(static_cast<size_t>(experts) + 1), {}};
  for (int64_t i = 0; i < count; ++i)
    if (ids[i] >= 0) ++s.starts[static_cast<size_t>(ids[i]) + 1];
  std::partial_sum(s.starts.begin(), s.starts.end(), s.starts.begin());
  s.slot.resize(static_cast<size_t>(s.starts.back()));
  auto next = s.starts;
  for (int64_t i = 0; i < count; ++i)
    if (ids[i] >= 0)
      s.slot[static_cast<size_t>(next[static_cast<size_t>(ids[i])]++)] = static_cast<int32_t>(i);
  return s;
}

void forward(const OpCall& call) {
  const auto& a = call.attr<CapacityAttr>();
  const Tensor& ids = call.in[1];
  const int64_t count = ids.numel(), limit = expert_capacity(ids.dim(0), ids.dim(1), a.experts, a.factor);
  auto *probs = call.out[0].as<float>(), *dropped = call.out[2].as<float>();
  auto* kept = call.out[1].as<int32_t>();
  *dropped = 0;
  if (count == 0) return;
  std::memcpy(probs, call.in[0].data, static_cast<size_t>(call.in[0].bytes()));
  std::memcpy(kept, ids.data, static_cast<size_t>(ids.bytes()));
  for (int64_t s = 0; s < count; ++s)
    if (kept[s] < 0) probs[s] = 0;
  Slots slots = by_expert(kept, count, a.experts);
  for (size_t e = 0; e < static_cast<size_t>(a.experts); ++e)
    *dropped += static_cast<float>(std::max<int64_t>(0, slots.starts[e + 1] - slots.starts[e] - limit));
  parallel_for(a.experts, 1, [&](int64_t first, int64_t last) {
    for (auto e = static_cast<size_t>(first); e < static_cast<size_t>(last); ++e) {
      const auto begin = slots.slot.begin() + slots.starts[e], end = slots.slot.begin() + slots.starts[e + 1];
      if (end - begin <= limit) continue;
      const auto better = [&](int32_t x, int32_t y) {
        const int64_t of_x = order_of(probs[x]), of_y = order_of(probs[y]);
        return of_x < of_y || (of_x == of_y && x < y);
      };
      if (a.drop == DropRule::weight) std::nth_element(begin, begin + limit, end, better);
      for (auto s = begin + limit; s != end; ++s) {
        probs[*s] = 0;
        kept[*s] = -1;
      }
    }
  });
}

void backward_input(const OpCall& call) {
  const GradSlot& d_probs = call.d_in[0];
  if (!d_probs.wanted()) return;
  const auto* kept = call.out[1].as<int32_t>();
  auto* to = d_probs.tensor.as<float>();
  const float* from = call.d_out[0].defined() ? call.d_out[0].as<float>() : nullptr;
  for (int64_t s = 0; s < d_probs.tensor.numel(); ++s) {
    const float d = from != nullptr && kept[s] >= 0 ? from[s] : 0.0f;
    to[s] = d_probs.accumulate ? to[s] + d : d;
  }
}

}  // namespace

int64_t expert_capacity(int64_t tokens, int64_t k, int64_t experts, double factor) {
  return static_cast<int64_t>(
      std::ceil(static_cast<double>(tokens * k) / static_cast<double>(experts) * factor));
}

const Op& capacity_op() {
  static const Op op{.name = "capacity",
                     .inputs = {{"probs"}, {"ids", InputKind::data}},
                     .outputs = {{"kept_probs"}, {"kept_ids", false}, {"dropped", false}},
                     .reads = always<BackwardReads{.input_out = slot_bit(1)}>,
                     .infer = infer,
                     .cost = cost,
                     .print = print,
                     .kernels = with_gpu_kernels(
                         "capacity", {{"cpu", refuse_other_than_f32, forward, backward_input, nullptr},
                                      capacity_reference()}),
                     .axis_rule = {.passes = kRowwise}};
  return op;
}

CapacityResult capacity(Tape& tape, const CapacityAttr& attr, const Value& probs_TK, const Value& ids_TK) {
  auto o = tape.apply(capacity_op(), attr, {probs_TK, ids_TK});
  return {std::move(o[0]), std::move(o[1]), std::move(o[2])};
}

}  // namespace ingot
