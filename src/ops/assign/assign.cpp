// See assign.h: the op's description, and its CPU kernel: rows in parallel; column sums by chunks of 64
// rows, added in order.
#include "ops/assign/assign.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/parallel.h"
#include "ops/assign/call.h"
#include "ops/assign/isa_assign.h"
#include "ops/capacity/capacity.h"
#include "ops/common.h"
#include "ops/gpu_registry.h"
#include "ops/parameter_chunks.h"
#include "ops/route/isa_route.h"

namespace ingot {
namespace {

void infer(const OpCall& call, std::span<TensorMeta> out) {
  const auto& a = call.attr<AssignAttr>();
  const Tensor& logits = call.in[0];
  INGOT_CHECK(logits.shape().rank() == 2 && is_floating(logits.dtype()) && logits.dtype() != DType::bf16 &&
                  a.k >= 1 && a.k <= logits.dim(1) && a.factor > 0,
              "logits {}, k = {}", logits.meta.str(), a.k);
  out[0] = {Shape{logits.dim(0), a.rule == AssignRule::sinkhorn ? a.k : logits.dim(1)}, DType::i32};
}

OpCost cost(const OpCall& call) {
  return {12 * static_cast<double>(call.in[0].numel()), 0, 0, tensor_bytes(call)};
}

std::string print(const void* attr_data) {
  const auto& a = *static_cast<const AssignAttr*>(attr_data);
  if (a.rule == AssignRule::sinkhorn) return fmt::format("sinkhorn top{}", a.k);
  return fmt::format("expert_choice k={} factor={}{}", a.k, a.factor, a.sigmoid ? " sigmoid" : "");
}

template <class F>
void over_rows(int64_t rows, F&& f) {
  parallel_for(rows, kParameterChunkRows, [&](int64_t begin, int64_t end) { f(begin, end); });
}

/// One round: new d1 from the old; the mean of its change.
double round(const AssignRows& r, const AssignScratch& s) {
  const int64_t chunks = parameter_chunks(r.rows);
  parallel_for(chunks, 1, [&](int64_t first, int64_t last) {
    for (int64_t c = first; c < last; ++c) {
      float* partial = s.partials + c * r.experts;
      std::memset(partial, 0, static_cast<size_t>(r.experts) * sizeof(float));
      INGOT_ISA_CALL(sinkhorn_rows)
      (r, c * kParameterChunkRows, std::min(r.rows, (c + 1) * kParameterChunkRows), partial);
    }
  });
  combine_parameter_chunks(s.partials, chunks, r.experts, r.experts,
                           {Tensor::of(s.sums, {r.experts}), false});
  double change = 0;
  for (int64_t e = 0; e < r.experts; ++e) {
    const float next =
        1.0f / (static_cast<float>(r.experts) * (s.sums[e] + static_cast<float>(kSinkhornEpsilon)));
    change += std::abs(static_cast<double>(next) - static_cast<double>(s.d1[e]));
    s.d1[e] = next;
  }
  return change / static_cast<double>(r.experts);
}

void sinkhorn(const AssignRows& r, const AssignScratch& s) {
  over_rows(r.rows, [&](int64_t begin, int64_t end) { INGOT_ISA_CALL(assign_costs)(r, begin, end); });
  std::fill(s.d1, s.d1 + r.experts, 1.0f);
  for (int i = 0; i < kSinkhornRounds && round(r, s) >= kSinkhornTolerance; ++i) {
  }
  over_rows(r.rows, [&](int64_t begin, int64_t end) { INGOT_ISA_CALL(sinkhorn_choose)(r, begin, end); });
}

/// Integers in descending order of the scores, NaN last.
int64_t order_of(float score) {
  if (score != score) return INT64_MAX;
  int32_t bits;
  std::memcpy(&bits, &score, sizeof(bits));
  return -static_cast<int64_t>(bits);  // scores are not negative
}

void expert_choice(const AssignRows& r, int64_t taken) {
  over_rows(r.rows, [&](int64_t begin, int64_t end) { INGOT_ISA_CALL(assign_scores)(r, begin, end); });
  std::fill(r.ids, r.ids + r.rows * r.experts, -1);
  parallel_for(r.experts, 1, [&](int64_t first, int64_t last) {
    std::vector<std::pair<int64_t, int64_t>> order(static_cast<size_t>(r.rows));
    for (int64_t e = first; e < last; ++e) {
      for (int64_t t = 0; t < r.rows; ++t)
        order[static_cast<size_t>(t)] = {order_of(r.matrix[t * r.experts + e]), t};
      std::nth_element(order.begin(), order.begin() + taken, order.end());
      for (int64_t i = 0; i < taken; ++i)
        r.ids[order[static_cast<size_t>(i)].second * r.experts + e] = static_cast<int32_t>(e);
    }
  });
}

void forward(const OpCall& call) {
  const AssignRows r = assign_rows(call);
  if (r.rows == 0) return;
  if (call.attr<AssignAttr>().rule == AssignRule::sinkhorn)
    sinkhorn(r, AssignScratch(call));
  else
    expert_choice(r, assign_taken(call));
}

}  // namespace

AssignScratch::AssignScratch(const OpCall& call) {
  const int64_t rows = call.in[0].dim(0), experts = call.in[0].dim(1);
  matrix = static_cast<float*>(call.scratch);
  d1 = matrix + rows * experts;
  sums = d1 + experts;
  partials = sums + experts;
  state = reinterpret_cast<int32_t*>(partials + parameter_chunks(rows) * experts);
}

int64_t AssignScratch::bytes(const OpCall& call) {
  const int64_t rows = call.in[0].dim(0), experts = call.in[0].dim(1);
  return ((rows + 2 + parameter_chunks(rows)) * experts + 2) * int64_t{sizeof(float)};
}

AssignRows assign_rows(const OpCall& call) {
  const auto& a = call.attr<AssignAttr>();
  const Tensor& logits = call.in[0];
  const AssignScratch s(call);
  return {logits.dim(1),
          a.k,
          logits.dim(0),
          device_address<const float>(logits),
          s.matrix,
          s.d1,
          device_address<int32_t>(call.out[0]),
          a.sigmoid};
}

int64_t assign_taken(const OpCall& call) {
  const auto& a = call.attr<AssignAttr>();
  const int64_t rows = call.in[0].dim(0);
  return std::min(rows, expert_capacity(rows, a.k, call.in[0].dim(1), a.factor));
}

const char* refuse_assign(const OpCall& call) {
  if (call.in[0].dtype() != DType::f32) return "a type other than f32";
  return call.in[0].dim(1) > kMaxRouteClasses ? "more than 1024 experts" : nullptr;
}

const Op& assign_op() {
  static const Op op{.name = "assign",
                     .inputs = {{"logits", InputKind::data}},
                     .outputs = {{"ids", false}},
                     .reads = reads_nothing,
                     .infer = infer,
                     .cost = cost,
                     .scratch_bytes = AssignScratch::bytes,
                     .print = print,
                     .kernels = with_gpu_kernels(
                         "assign", {{"cpu", refuse_assign, forward, nullptr, nullptr}, assign_reference()}),
                     .axis_rule = {.passes = kRowwise}};
  return op;
}

Value assign(Tape& tape, const AssignAttr& attr, const Value& logits_TE) {
  return tape.apply(assign_op(), attr, {logits_TE}).front();
}

}  // namespace ingot
