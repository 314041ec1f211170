// See mla.h: the descriptions of both ops, and their CPU kernels: rows in parallel, norm weights' gradients
// by chunks of rows.
#include "ops/mla/mla.h"

#include <cstring>

#include "ops/common.h"
#include "ops/gpu_registry.h"
#include "ops/mla/call.h"
#include "ops/mla/isa_mla.h"
#include "ops/parameter_chunks.h"

namespace ingot {
namespace {

constexpr int64_t kMaxRope = 1024;  // kept on the stack by the kernels

void require_rotary(const RotaryRule& rule, int64_t rope) {
  INGOT_CHECK(rope > 0 && rope % 2 == 0 && (rule.dims == 0 || rule.dims == rope),
              "{} rotary channels, {} of them turn", rope, rule.dims);
}

namespace latents {
using namespace mla_latents_slot;

void infer(const OpCall& call, std::span<TensorMeta> out) {
  const auto& a = call.attr<MlaLatentsAttr>();
  const Tensor& x = call.in[kDown];
  const DType stat = statistic_of(x);
  require_rotary(a.rotary, a.rope);
  INGOT_CHECK(
      a.q_rank >= 0 && a.kv_rank > 0 && x.shape().rank() == 2 && x.dim(1) == a.q_rank + a.kv_rank + a.rope,
      "latents of {} + {} + {} from {}", a.q_rank, a.kv_rank, a.rope, x.meta.str());
  const int64_t rows = x.dim(0);
  require(call.in[kPositions], {rows}, DType::i32, "positions");
  require(call.in[kKvWeight], {a.kv_rank}, stat, "kv_weight");
  INGOT_CHECK(call.in[kQWeight].defined() == (a.q_rank > 0), "a norm of queries without their latent");
  if (a.q_rank > 0) require(call.in[kQWeight], {a.q_rank}, stat, "q_weight");
  out[kQLatent] = {Shape{a.q_rank > 0 ? rows : 0, a.q_rank}, a.out};
  out[kC] = {Shape{rows, a.kv_rank}, a.out};
  out[kKRope] = {Shape{rows, a.rope}, a.out};
  out[kRstd] = {Shape{rows, 2}, stat};
}

OpCost cost(const OpCall& call) {
  const auto n = static_cast<double>(call.in[kDown].numel());
  return {6 * n, 12 * n, 0, tensor_bytes(call)};
}

BackwardReads reads(const void* attr_data) {
  const bool q = static_cast<const MlaLatentsAttr*>(attr_data)->q_rank > 0;
  return {slot_bit(kDown) | slot_bit(kPositions) | slot_bit(kKvWeight) | (q ? slot_bit(kQWeight) : 0),
          slot_bit(kRstd), 0, 0};
}

std::string print(const void* attr_data) {
  const auto& a = *static_cast<const MlaLatentsAttr*>(attr_data);
  return fmt::format("ranks={}/{} rope={} {} theta={} eps={} out={}", a.q_rank, a.kv_rank, a.rope,
                     name_of(a.rotary.kind), a.rotary.theta, a.eps, name_of(a.out));
}

MlaLatentRows arguments(const OpCall& call) {
  const auto& a = call.attr<MlaLatentsAttr>();
  MlaLatentRows p{};
  p.ranks[0] = a.q_rank, p.ranks[1] = a.kv_rank, p.rope = a.rope, p.eps = static_cast<float>(a.eps);
  p.rotary = rotary_table(a.rotary);
  p.positions = device_address<const int32_t>(call.in[kPositions]);
  p.x = call.in[kDown].data, p.x_type = call.in[kDown].dtype();
  p.weights[0] = device_address<const float>(call.in[kQWeight]);
  p.weights[1] = device_address<const float>(call.in[kKvWeight]);
  p.rstd = device_address<float>(call.out[kRstd]);
  p.y_type = a.out;
  return p;
}

void forward(const OpCall& call) {
  const MlaLatentRows p = mla_latents_forward_rows(call);
  check_positions(p.positions, call.in[kDown].dim(0));
  parallel_kernel(call.in[kDown].dim(0), 16, INGOT_ISA_CALL(mla_latents_forward), p);
}

void backward(const OpCall& call) {
  const MlaLatentRows p = mla_latents_backward_rows(call);
  const int64_t rows = call.in[kDown].dim(0), width = p.ranks[0] + p.ranks[1];
  const bool weights = call.d_in[kQWeight].wanted() || call.d_in[kKvWeight].wanted();
  auto* partials = static_cast<float*>(call.scratch);
  parallel_for(parameter_chunks(rows), 1, [&](int64_t first, int64_t last) {
    for (int64_t chunk = first; chunk < last; ++chunk) {
      float* d_weights = weights ? partials + chunk * width : nullptr;
      if (weights) std::memset(d_weights, 0, static_cast<size_t>(width) * sizeof(float));
      const int64_t begin = chunk * kParameterChunkRows;
      INGOT_ISA_CALL(mla_latents_backward)(p, begin, std::min(rows, begin + kParameterChunkRows), d_weights);
    }
  });
  combine_parameter_chunks(partials, parameter_chunks(rows), width, p.ranks[0], call.d_in[kQWeight]);
  combine_parameter_chunks(partials + p.ranks[0], parameter_chunks(rows), width, p.ranks[1],
                           call.d_in[kKvWeight]);
}

int64_t scratch_bytes(const OpCall& call) {
  const auto& a = call.attr<MlaLatentsAttr>();
  return parameter_chunks(call.in[kPositions].dim(0)) * (a.q_rank + a.kv_rank) * 4;
}
}  // namespace latents

namespace pack {
using namespace mla_pack_slot;

void infer(const OpCall& call, std::span<TensorMeta> out) {
  const auto& a = call.attr<MlaPackAttr>();
  const Tensor& q = call.in[kQ];
  const int64_t rows = q.dim(0), K = a.nope + a.rope;
  require_rotary(a.rotary, a.rope);
  require(q, {rows, a.heads * K}, q.dtype(), "q");
  require(call.in[kPositions], {rows}, DType::i32, "positions");
  INGOT_CHECK(call.in[kKv].defined() == call.in[kKRope].defined(), "kv comes with k_rope");
  const bool all = call.in[kKv].defined();
  if (all) require(call.in[kKv], {rows, a.heads * (a.nope + a.value)}, q.dtype(), "kv");
  if (all) require(call.in[kKRope], {rows, a.rope}, q.dtype(), "k_rope");
  out[0] = {Shape{rows, a.heads * (all ? 2 * K + a.value : K)}, q.dtype()};
}

OpCost cost(const OpCall& call) {
  const auto& a = call.attr<MlaPackAttr>();
  const auto rotated = static_cast<double>(call.in[kQ].dim(0) * a.heads * a.rope);
  return {3 * rotated, 4 * rotated, 0, tensor_bytes(call)};
}

std::string print(const void* attr_data) {
  const auto& a = *static_cast<const MlaPackAttr*>(attr_data);
  return fmt::format("heads={}x({}+{})/{} {} theta={}", a.heads, a.nope, a.rope, a.value,
                     name_of(a.rotary.kind), a.rotary.theta);
}

MlaPackRows arguments(const OpCall& call) {
  const auto& a = call.attr<MlaPackAttr>();
  MlaPackRows p{};
  p.heads = a.heads, p.nope = a.nope, p.rope = a.rope, p.value = a.value;
  p.rotary = rotary_table(a.rotary);
  p.positions = device_address<const int32_t>(call.in[kPositions]);
  return p;
}

void forward(const OpCall& call) {
  const MlaPackRows p = mla_pack_forward_rows(call);
  const int64_t rows = call.in[kQ].dim(0);
  check_positions(p.positions, rows);
  parallel_kernel(rows, 16, INGOT_ISA_CALL(mla_pack_forward), p);
}

void backward(const OpCall& call) {
  parallel_kernel(call.d_out[0].dim(0), 16, INGOT_ISA_CALL(mla_pack_backward), mla_pack_backward_rows(call));
}
}  // namespace pack

const char* refuse_wide(const OpCall& call, int64_t rope) {
  if (const char* reason = refuse_other_floats(call)) return reason;
  return rope > kMaxRope ? "more than 1024 rotary channels" : nullptr;
}

}  // namespace

MlaLatentRows mla_latents_forward_rows(const OpCall& call) {
  MlaLatentRows p = latents::arguments(call);
  for (const size_t o : {0, 1, 2}) p.y[o] = call.out[o].data;
  return p;
}

MlaLatentRows mla_latents_backward_rows(const OpCall& call) {
  using namespace mla_latents_slot;
  MlaLatentRows p = latents::arguments(call);
  for (const size_t o : {0, 1, 2}) p.d_y[o] = call.d_out[o].data;
  p.d_x = call.d_in[kDown].tensor.data, p.accumulate = call.d_in[kDown].accumulate;
  return p;
}

MlaPackRows mla_pack_forward_rows(const OpCall& call) {
  using namespace mla_pack_slot;
  MlaPackRows p = pack::arguments(call);
  p.type = call.in[kQ].dtype();
  p.q = call.in[kQ].data, p.kv = call.in[kKv].data, p.k_rope = call.in[kKRope].data;
  p.queries_only = !call.in[kKv].defined();
  p.y = call.out[0].data;
  return p;
}

MlaPackRows mla_pack_backward_rows(const OpCall& call) {
  using namespace mla_pack_slot;
  MlaPackRows p = pack::arguments(call);
  const Tensor& d_y = call.d_out[0];
  p.type = d_y.dtype();
  p.queries_only = d_y.dim(1) == p.heads * (p.nope + p.rope);
  p.d_y = d_y.data;
  p.d_q = call.d_in[kQ].tensor.data, p.accumulate_q = call.d_in[kQ].accumulate;
  p.d_kv = call.d_in[kKv].tensor.data, p.accumulate_kv = call.d_in[kKv].accumulate;
  p.d_k_rope = call.d_in[kKRope].tensor.data, p.accumulate_k_rope = call.d_in[kKRope].accumulate;
  return p;
}

const char* refuse_mla_latents(const OpCall& call) {
  return refuse_wide(call, call.attr<MlaLatentsAttr>().rope);
}

const char* refuse_mla_pack(const OpCall& call) {
  return refuse_wide(call, call.attr<MlaPackAttr>().rope);
}

const Op& mla_latents_op() {
  static const Op op{.name = "mla_latents",
                     .inputs = {{"down"},
                                {"positions", InputKind::data},
                                {"q_weight", InputKind::parameter, true},
                                {"kv_weight", InputKind::parameter}},
                     .outputs = {{"q_latent"}, {"c"}, {"k_rope"}, {"rstd", false}},
                     .reads = latents::reads,
                     .infer = latents::infer,
                     .cost = latents::cost,
                     .scratch_bytes = latents::scratch_bytes,
                     .print = latents::print,
                     .kernels = with_gpu_kernels("mla_latents", {{"cpu", refuse_mla_latents, latents::forward,
                                                                  latents::backward, nullptr},
                                                                 mla_latents_reference()}),
                     .axis_rule = {.passes = kRowwise}};
  return op;
}

const Op& mla_pack_op() {
  static const Op op{.name = "mla_pack",
                     .inputs = {{"q"},
                                {"positions", InputKind::data},
                                {"kv", InputKind::activation, true},
                                {"k_rope", InputKind::activation, true}},
                     .outputs = {{"qkv"}},
                     .reads = always<BackwardReads{.input_in = slot_bit(mla_pack_slot::kPositions)}>,
                     .infer = pack::infer,
                     .cost = pack::cost,
                     .print = pack::print,
                     .kernels = with_gpu_kernels(
                         "mla_pack", {{"cpu", refuse_mla_pack, pack::forward, pack::backward, nullptr},
                                      mla_pack_reference()}),
                     .axis_rule = {.passes = kElementwise}};
  return op;
}

MlaLatents mla_latents(Tape& tape, const MlaLatentsAttr& attr, const Value& down_TL, const Value& positions_T,
                       const Value& q_weight_Q, const Value& kv_weight_C) {
  auto out = tape.apply(mla_latents_op(), attr, {down_TL, positions_T, q_weight_Q, kv_weight_C});
  return {std::move(out[0]), std::move(out[1]), std::move(out[2])};
}

Value mla_pack(Tape& tape, const MlaPackAttr& attr, const Value& q, const Value& positions_T, const Value& kv,
               const Value& k_rope) {
  return tape.apply(mla_pack_op(), attr, {q, positions_T, kv, k_rope})[0];
}

}  // namespace ingot
