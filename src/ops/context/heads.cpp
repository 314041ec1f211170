// See heads.h: both ops. Messages are rows of W / n columns, packed by rank.
#include "ops/context/heads.h"

#include <cstring>

#include "ops/collective/transfer.h"
#include "ops/common.h"

namespace ingot {
namespace {

/// Copies a rank's columns between a row of W and a row of W / n.
struct Columns {
  Columns(const HeadsAttr& a, DType type) : a_(a), n_(a.context.rows->ranks()), size_(size_of(type)) {}
  template <class F>
  void each(int rank, const F& f) const {
    int64_t wide = 0, narrow = 0;
    for (size_t kind = 0; kind < 3; ++kind) {
      const int64_t bytes = a_.heads[kind] / n_ * a_.width[kind] * size_;
      f(wide + rank * bytes, narrow, static_cast<size_t>(bytes));
      wide += n_ * bytes, narrow += bytes;
    }
  }
  void pack(int rank, const std::byte* wide, std::byte* narrow) const {
    each(rank, [&](int64_t from, int64_t to, size_t bytes) { std::memcpy(narrow + to, wide + from, bytes); });
  }
  void unpack(int rank, const std::byte* narrow, std::byte* wide) const {
    each(rank, [&](int64_t to, int64_t from, size_t bytes) { std::memcpy(wide + to, narrow + from, bytes); });
  }

 private:
  const HeadsAttr& a_;
  int64_t n_, size_;
};

std::byte* row_of(const Tensor& t, int64_t row) {
  return static_cast<std::byte*>(t.data) + row * t.dim(1) * size_of(t.dtype());
}

/// local [T / n, W] -> whole [T, W / n], through 2 buffers of their size.
void to_heads(const HeadsAttr& a, const Tensor& local, const Tensor& whole, void* scratch) {
  const ContextRows& c = *a.context.rows;
  const Columns columns(a, local.dtype());
  const Tensor out(scratch, whole.shape(), local.dtype()),
      in(row_of(out, whole.dim(0)), whole.shape(), local.dtype());
  for (int p = 0; p < c.ranks(); ++p)
    for (int64_t i = 0; i < c.count(); ++i) columns.pack(p, row_of(local, i), row_of(out, p * c.count() + i));
  const std::vector<int64_t> rows(static_cast<size_t>(c.ranks()), c.count());
  group_of(a.context.comm).all_to_all(out, rows, in, rows).wait();
  for (int p = 0; p < c.ranks(); ++p)
    for (int64_t i = 0; i < c.count(); ++i)
      std::memcpy(row_of(whole, c.whole_row(p, i)), row_of(in, p * c.count() + i),
                  static_cast<size_t>(whole.dim(1) * size_of(whole.dtype())));
}

void to_rows(const HeadsAttr& a, const Tensor& whole, const Tensor& local, void* scratch) {
  const ContextRows& c = *a.context.rows;
  const Columns columns(a, local.dtype());
  const Tensor out(scratch, whole.shape(), local.dtype()),
      in(row_of(out, whole.dim(0)), whole.shape(), local.dtype());
  for (int p = 0; p < c.ranks(); ++p)
    for (int64_t i = 0; i < c.count(); ++i)
      std::memcpy(row_of(out, p * c.count() + i), row_of(whole, c.whole_row(p, i)),
                  static_cast<size_t>(whole.dim(1) * size_of(whole.dtype())));
  const std::vector<int64_t> rows(static_cast<size_t>(c.ranks()), c.count());
  group_of(a.context.comm).all_to_all(out, rows, in, rows).wait();
  for (int p = 0; p < c.ranks(); ++p)
    for (int64_t i = 0; i < c.count(); ++i)
      columns.unpack(p, row_of(in, p * c.count() + i), row_of(local, i));
}

using Move = void (*)(const HeadsAttr& a, const Tensor& from, const Tensor& to, void* scratch);

template <Move move>
void forward(const OpCall& call) {
  move(call.attr<HeadsAttr>(), call.in[0], call.out[0], call.scratch);
}

template <Move adjoint>
void backward(const OpCall& call) {
  const Tensor& d_y = call.d_out[0];
  INGOT_CHECK(d_y.defined() && call.d_in[0].wanted());
  std::byte* buffers = static_cast<std::byte*>(call.scratch);
  receive_gradient(call.d_in[0], buffers + 2 * d_y.bytes(),
                   [&](const Tensor& d_x) { adjoint(call.attr<HeadsAttr>(), d_y, d_x, buffers); });
}

template <bool to_heads>
void infer(const OpCall& call, std::span<TensorMeta> out) {
  const auto& a = call.attr<HeadsAttr>();
  const int64_t n = a.context.rows->ranks(), rows = a.context.rows->count();
  for (const int64_t heads : a.heads) INGOT_CHECK(heads % n == 0, "{} heads on {} ranks", heads, n);
  const Shape local{rows, a.packed()}, whole{rows * n, a.packed() / n};
  INGOT_CHECK(call.in[0].shape() == (to_heads ? local : whole), "{}", call.in[0].meta.str());
  out[0] = {to_heads ? whole : local, call.in[0].dtype()};
}

OpCost cost(const OpCall& call) {
  const double n = call.attr<HeadsAttr>().context.rows->ranks();
  OpCost c{0, 0, 0, tensor_bytes(call)};
  c.wire_bytes[0] = c.wire_bytes[1] = (n - 1) / n * static_cast<double>(call.in[0].bytes());
  return c;
}

int64_t scratch_bytes(const OpCall& call) {
  const Tensor& x = call.d_in.empty() ? call.in[0] : call.d_out[0];
  const bool accumulate = !call.d_in.empty() && call.d_in[0].accumulate;
  return x.defined() ? (accumulate ? 3 : 2) * x.bytes() : 0;
}

std::string print(const void* attr) {
  const auto& a = *static_cast<const HeadsAttr*>(attr);
  return fmt::format("{}+{}+{} heads over {} ranks", a.heads[0], a.heads[1], a.heads[2],
                     a.context.rows->ranks());
}

void dry_run(const OpCall& call, bool) {
  group_of(call.attr<HeadsAttr>().context.comm).dry_run().wait();
}

template <Move move, Move adjoint, bool to_heads>
Op heads_op(const char* name, AxisType from, AxisType to) {
  return {.name = name,
          .inputs = {{to_heads ? "x" : "y"}},
          .outputs = {{to_heads ? "y" : "x"}},
          .reads = reads_nothing,
          .infer = infer<to_heads>,
          .cost = cost,
          .scratch_bytes = scratch_bytes,
          .print = print,
          .kernels = transfer_kernels(forward<move>, backward<adjoint>),
          .dry_run = dry_run,
          .axis_rule = group_rule<HeadsAttr>(kHeadwise, from, to)};
}

}  // namespace

const Op& rows_to_heads_op() {
  static const Op op = heads_op<to_heads, to_rows, true>("rows_to_heads", AxisType::rows, AxisType::shards);
  return op;
}
const Op& heads_to_rows_op() {
  static const Op op = heads_op<to_rows, to_heads, false>("heads_to_rows", AxisType::shards, AxisType::rows);
  return op;
}

Value rows_to_heads(Tape& tape, const HeadsAttr& attr, const Value& x) {
  return tape.apply(rows_to_heads_op(), attr, {x})[0];
}
Value heads_to_rows(Tape& tape, const HeadsAttr& attr, const Value& y) {
  return tape.apply(heads_to_rows_op(), attr, {y})[0];
}

}  // namespace ingot
