// See context_attention.h: the op's description, and what its kernels share.
#include "ops/context/context_attention.h"

#include <cstring>

#include "ops/attention/kernels.h"
#include "ops/collective/transfer.h"
#include "ops/context/context_kernels.h"

namespace ingot {
namespace {

/// The column of the packed rows at which keys begin.
int64_t first_key_column(const AttentionAttr& a) {
  return a.heads * a.head_width;
}

int64_t scratch_bytes(const OpCall& call) {
  const auto& attr = call.attr<ContextAttentionAttr>();
  const DType type = call.in[0].dtype();
  ContextMemory m(nullptr);
  m.pass(attr, type, !call.d_in.empty());
  if (type != DType::f64) m.kernel(attr, !call.d_in.empty());
  return m.bytes();
}

void infer(const OpCall& call, std::span<TensorMeta> out) {
  const auto& attr = call.attr<ContextAttentionAttr>();
  const AttentionAttr& a = attr.attention;
  const Tensor& qkv = call.in[0];
  INGOT_CHECK(
      qkv.shape() == (Shape{attr.context.rows->count(), a.packed_width()}) && a.heads % a.kv_heads == 0,
      "qkv is {}", qkv.meta.str());
  const DType statistic = statistic_of(qkv);
  out[0] = {Shape{qkv.dim(0), a.heads * a.values()}, qkv.dtype()};
  out[1] = {Shape{qkv.dim(0), a.heads}, statistic};
  out[2] = {Shape{a.heads}, statistic};
}

/// Pairs of the rank's queries and the keys that they see; wire: n - 1 blocks, and in backward as many with cotangents.
OpCost cost(const OpCall& call) {
  const auto& attr = call.attr<ContextAttentionAttr>();
  const AttentionAttr& a = attr.attention;
  double pairs = 0;
  for (const ContextPiece& p : attr.context.rows->pieces(attr.context.rows->rank()))
    for (int64_t t = p.first; t < p.first + p.rows; ++t)
      pairs += static_cast<double>(t - AttentionWindow{a.window, a.window_block, p.phase}.first(t) + 1);
  const double channel = 2 * pairs * static_cast<double>(a.heads);
  const double scores = channel * static_cast<double>(a.head_width),
               sums = channel * static_cast<double>(a.values());
  OpCost c{scores + sums, 3 * scores + 2 * sums, 0, tensor_bytes(call)};
  const auto values = static_cast<double>(attr.context.rows->count() * kv_width(a));
  const double others = attr.context.rows->ranks() - 1,
               block = values * static_cast<double>(size_of(call.in[0].dtype()));
  c.wire_bytes[0] = others * block;
  c.wire_bytes[1] = others * block + (others + (attr.ring ? 1 : 0)) * values *
                                         static_cast<double>(size_of(statistic_of(call.in[0])));
  return c;
}

BackwardReads reads(const void*) {
  return {0b1, 0b11, 0, 0};
}

void dry_run(const OpCall& call, bool back) {
  const auto& attr = call.attr<ContextAttentionAttr>();
  BlockPass::dry_run(group_of(attr.context.comm), attr.ring, back);
}

std::string print(const void* attr_data) {
  const auto& attr = *static_cast<const ContextAttentionAttr*>(attr_data);
  const AttentionAttr& a = attr.attention;
  return fmt::format("{} heads={}/{}x{}/{} scale={} window={} softcap={}", attr.ring ? "ring" : "gather",
                     a.heads, a.kv_heads, a.head_width, a.values(), attention_scale(a), a.window, a.softcap);
}

}  // namespace

BlockPass ContextMemory::pass(const ContextAttentionAttr& attr, DType type, bool back) {
  const int64_t rows = attr.context.rows->count(), width = kv_width(attr.attention);
  const int ranks = attr.context.rows->ranks();
  BlockPass p{group_of(attr.context.comm), attr.ring};
  p.own = take(rows, width, type);
  p.room = take(BlockPass::room_rows(attr.ring, ranks, rows), width, type);
  if (!back) return p;
  const DType sum = type == DType::f64 ? DType::f64 : DType::f32;
  p.d_own = take(rows, width, sum);
  p.d_room = take(BlockPass::d_room_rows(attr.ring, ranks, rows), width, sum);
  return p;
}

ContextParts ContextMemory::kernel(const ContextAttentionAttr& attr, bool back) {
  const AttentionAttr& a = attr.attention;
  const int64_t rows = attr.context.rows->count();
  ContextParts p;
  if (back) {
    p.d_q = take(rows, a.heads * a.head_width, DType::f32),
    p.d_q_part = take(rows, a.heads * a.head_width, DType::f32);
    p.d_kv_part = take(rows, kv_width(a), DType::f32);
  } else {
    p.o = take(rows, a.heads * a.values(), DType::f32),
    p.o_part = take(rows, a.heads * a.values(), DType::f32);
    p.lse_part = take(rows, a.heads, DType::f32);
  }
  return p;
}

Tensor ContextMemory::take(int64_t rows, int64_t width, DType type) {
  const int64_t at = bytes_;
  bytes_ += (rows * width * size_of(type) + 63) / 64 * 64;
  return {memory_ != nullptr ? memory_ + at : nullptr, {rows, width}, type};
}

void pack_keys(const AttentionAttr& a, const Tensor& qkv, const Tensor& own) {
  const int64_t size = size_of(qkv.dtype()), row = a.packed_width() * size, block = kv_width(a) * size;
  const auto* from = static_cast<const std::byte*>(qkv.data) + first_key_column(a) * size;
  for (int64_t r = 0; r < qkv.dim(0); ++r)
    std::memcpy(static_cast<std::byte*>(own.data) + r * block, from + r * row, static_cast<size_t>(block));
}

const Op& context_attention_op() {
  static const Op op{"context_attention",
                     {{"qkv"}},
                     {{"o"}, {"lse", false}, {"max_logit", false}},
                     reads,
                     infer,
                     cost,
                     scratch_bytes,
                     print,
                     {context_attention_cpu(), context_attention_reference()},
                     false,
                     nullptr,
                     false,
                     dry_run};
  return op;
}

AttentionResult context_attention(Tape& tape, const ContextAttentionAttr& attr, const Value& qkv_TW) {
  auto out = tape.apply(context_attention_op(), attr, {qkv_TW});
  return {std::move(out[0]), std::move(out[1]), std::move(out[2])};
}

}  // namespace ingot
