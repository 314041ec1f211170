// See mla.h: the descriptions of the ops.
#include "ops/mla/mla.h"

#include "ops/mla/kernels.h"

namespace ingot {
namespace {

DType statistic_of(const Tensor& t) {
  return t.dtype() == DType::f64 ? DType::f64 : DType::f32;
}

void require(const Tensor& t, const Shape& shape, DType type, const char* name) {
  INGOT_CHECK(t.shape() == shape && t.dtype() == type, "{} is {}, expected {} {}", name, t.meta.str(),
              name_of(type), shape.str());
}

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

BackwardReads reads(const void*) {
  return {slot_bit(kPositions), 0, 0, 0};
}

std::string print(const void* attr_data) {
  const auto& a = *static_cast<const MlaPackAttr*>(attr_data);
  return fmt::format("heads={}x({}+{})/{} {} theta={}", a.heads, a.nope, a.rope, a.value,
                     name_of(a.rotary.kind), a.rotary.theta);
}
}  // namespace pack

namespace cached {
using namespace mla_cached_slot;

void infer(const OpCall& call, std::span<TensorMeta> out) {
  const auto& a = call.attr<MlaCachedAttr>();
  const Tensor& q = call.in[kQ];
  const int64_t rows = q.dim(0);
  require(q, {rows, a.heads * (a.nope + a.rope)}, q.dtype(), "q");
  require(call.in[kC], {rows, a.rank}, q.dtype(), "c");
  require(call.in[kKRope], {rows, a.rope}, q.dtype(), "k_rope");
  require(call.in[kKvUp], {a.heads * (a.nope + a.value), a.rank}, call.in[kKvUp].dtype(), "kv_up");
  SequenceSpan whole;
  for (const SequenceSpan& s : spans_of(a.rows, rows, whole))
    INGOT_CHECK(s.state != nullptr, "rows {} .. {} have no cached sequence", s.row_begin,
                s.row_begin + s.rows);
  out[0] = {Shape{rows, a.heads * a.value}, q.dtype()};
  out[1] = {Shape{a.heads}, statistic_of(q)};
}

OpCost cost(const OpCall& call) {
  const auto& a = call.attr<MlaCachedAttr>();
  double pairs = 0, tokens = 0;
  SequenceSpan whole;
  for (const SequenceSpan& s : spans_of(a.rows, call.in[kQ].dim(0), whole)) {
    tokens += static_cast<double>(a.absorb ? s.rows : s.past + s.rows);
    for (int64_t t = s.past; t < s.past + s.rows; ++t)
      pairs += static_cast<double>(t - mla_first_key(a, t) + 1);
  }
  const int64_t per_pair = a.absorb ? 2 * a.rank + a.rope : a.nope + a.rope + a.value;
  const double heads = 2 * static_cast<double>(a.heads);
  return {heads * (tokens * static_cast<double>(a.rank * (a.nope + a.value)) +
                   pairs * static_cast<double>(per_pair)),
          0, 0, tensor_bytes(call)};
}

BackwardReads reads(const void*) {
  return {};
}

std::string print(const void* attr_data) {
  const auto& a = *static_cast<const MlaCachedAttr*>(attr_data);
  return fmt::format("heads={}x({}+{})/{} rank={} scale={} window={} softcap={} {} layer={}", a.heads, a.nope,
                     a.rope, a.value, a.rank, a.scale, a.window, a.softcap,
                     a.absorb ? "absorbed" : "materialised", a.layer);
}
}  // namespace cached

}  // namespace

const Op& mla_latents_op() {
  static const Op op{"mla_latents",
                     {{"down"},
                      {"positions", InputKind::data},
                      {"q_weight", InputKind::parameter, true},
                      {"kv_weight", InputKind::parameter}},
                     {{"q_latent"}, {"c"}, {"k_rope"}, {"rstd", false}},
                     latents::reads,
                     latents::infer,
                     latents::cost,
                     mla_latents_scratch_bytes,
                     latents::print,
                     mla_latents_kernels()};
  return op;
}

const Op& mla_pack_op() {
  static const Op op{"mla_pack",
                     {{"q"},
                      {"positions", InputKind::data},
                      {"kv", InputKind::activation, true},
                      {"k_rope", InputKind::activation, true}},
                     {{"qkv"}},
                     pack::reads,
                     pack::infer,
                     pack::cost,
                     nullptr,
                     pack::print,
                     mla_pack_kernels()};
  return op;
}

const Op& mla_cached_op() {
  static const Op op{"mla_cached",
                     {{"q", InputKind::data},
                      {"c", InputKind::data},
                      {"k_rope", InputKind::data},
                      {"kv_up", InputKind::data}},
                     {{"o", false}, {"max_logit", false}},
                     cached::reads,
                     cached::infer,
                     cached::cost,
                     nullptr,
                     cached::print,
                     mla_cached_kernels()};
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

MlaCachedResult mla_cached(Tape& tape, const MlaCachedAttr& attr, const Value& q, const Value& c,
                           const Value& k_rope, const Value& kv_up) {
  auto out = tape.apply(mla_cached_op(), attr, {q, c, k_rope, kv_up});
  return {std::move(out[0]), std::move(out[1])};
}

}  // namespace ingot
