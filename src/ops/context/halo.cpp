// See halo.h: both ops.
#include "ops/context/halo.h"

#include <cstring>

#include "ops/collective/transfer.h"
#include "ops/common.h"

namespace ingot {
namespace {

constexpr int64_t kHalo = ContextRows::kHalo;

int64_t row_bytes(const Tensor& t) {
  return t.dim(1) * size_of(t.dtype());
}
std::byte* row_of(const Tensor& t, int64_t row) {
  return static_cast<std::byte*>(t.data) + row * row_bytes(t);
}

/// Which tails of this rank's two chunks go where, and which halos come from where. Messages are the rows of
/// all sequences.
struct Plan {
  explicit Plan(const ContextRows& c) {
    send_to.assign(static_cast<size_t>(c.ranks()), 0), receive_from = send_to;
    for (const int64_t half : {0, 1}) {
      const int64_t chunk = half == 0 ? c.rank() : 2 * c.ranks() - 1 - c.rank();
      const int64_t rows = kHalo * c.sequences();
      if (chunk + 1 < 2 * c.ranks())
        to[half] = c.owner(chunk + 1), send_to[static_cast<size_t>(to[half])] += rows;
      if (chunk > 0) from[half] = c.owner(chunk - 1), receive_from[static_cast<size_t>(from[half])] += rows;
    }
  }
  int to[2] = {-1, -1}, from[2] = {-1, -1};  ///< by half; -1: nobody
  std::vector<int64_t> send_to, receive_from;
};

/// First row of a message in a buffer packed by rank.
int64_t offset_of(const std::vector<int64_t>& rows, int rank) {
  int64_t at = 0;
  for (int r = 0; r < rank; ++r) at += rows[static_cast<size_t>(r)];
  return at;
}

int64_t messages(const ContextRows& c) {
  return 2 * kHalo * c.sequences();
}

/// f(half, sequence, row of the chunk's first token in x, row of the halo's first token in y)
template <class F>
void each_chunk(const ContextRows& c, const F& f) {
  for (int64_t i = 0; i < 2 * c.sequences(); ++i)
    f(static_cast<size_t>(i % 2), i / 2, i * c.chunk(), i * (c.chunk() + kHalo));
}

void forward(const OpCall& call) {
  const auto& a = call.attr<ContextAttr>();
  const ContextRows& c = *a.rows;
  const Tensor &x = call.in[0], &y = call.out[0];
  const Plan plan(c);
  const int64_t width = row_bytes(x);
  const auto bytes = static_cast<size_t>(kHalo * width);
  const Tensor out(call.scratch, Shape{messages(c), x.dim(1)}, x.dtype());
  const Tensor in(row_of(out, messages(c)), out.shape(), x.dtype());
  each_chunk(c, [&](size_t half, int64_t sequence, int64_t row, int64_t) {
    if (plan.to[half] >= 0)
      std::memcpy(row_of(out, offset_of(plan.send_to, plan.to[half]) + kHalo * sequence),
                  row_of(x, row + c.chunk() - kHalo), bytes);
  });
  group_of(a.comm).all_to_all(out, plan.send_to, in, plan.receive_from).wait();
  each_chunk(c, [&](size_t half, int64_t sequence, int64_t row, int64_t to) {
    if (plan.from[half] >= 0)
      std::memcpy(row_of(y, to), row_of(in, offset_of(plan.receive_from, plan.from[half]) + kHalo * sequence),
                  bytes);
    else
      std::memset(row_of(y, to), 0, bytes);
    std::memcpy(row_of(y, to + kHalo), row_of(x, row), static_cast<size_t>(c.chunk() * width));
  });
}

void backward(const OpCall& call) {
  const auto& a = call.attr<ContextAttr>();
  const ContextRows& c = *a.rows;
  const Tensor& d_y = call.d_out[0];
  INGOT_CHECK(d_y.defined() && call.d_in[0].wanted());
  const Plan plan(c);
  const int64_t width = row_bytes(d_y);
  const auto bytes = static_cast<size_t>(kHalo * width);
  const Tensor out(call.scratch, Shape{messages(c), d_y.dim(1)}, d_y.dtype());
  const Tensor in(row_of(out, messages(c)), out.shape(), d_y.dtype());
  each_chunk(c, [&](size_t half, int64_t sequence, int64_t, int64_t at) {
    if (plan.from[half] >= 0)
      std::memcpy(row_of(out, offset_of(plan.receive_from, plan.from[half]) + kHalo * sequence),
                  row_of(d_y, at), bytes);
  });
  group_of(a.comm).all_to_all(out, plan.receive_from, in, plan.send_to).wait();
  receive_gradient(call.d_in[0], row_of(in, messages(c)), [&](const Tensor& d_x) {
    each_chunk(c, [&](size_t half, int64_t sequence, int64_t row, int64_t at) {
      std::memcpy(row_of(d_x, row), row_of(d_y, at + kHalo), static_cast<size_t>(c.chunk() * width));
      if (plan.to[half] < 0) return;
      const int64_t message = offset_of(plan.send_to, plan.to[half]) + kHalo * sequence,
                    tail = row + c.chunk() - kHalo;
      add_tensor(d_x.slice(tail, tail + kHalo), in.slice(message, message + kHalo));
    });
  });
}

void forward_drop(const OpCall& call) {
  const ContextRows& c = *call.attr<ContextAttr>().rows;
  each_chunk(c, [&](size_t, int64_t, int64_t row, int64_t at) {
    std::memcpy(row_of(call.out[0], row), row_of(call.in[0], at + kHalo),
                static_cast<size_t>(c.chunk() * row_bytes(call.in[0])));
  });
}

void backward_drop(const OpCall& call) {
  const ContextRows& c = *call.attr<ContextAttr>().rows;
  const Tensor& d_x = call.d_out[0];
  INGOT_CHECK(d_x.defined());
  receive_gradient(call.d_in[0], call.scratch, [&](const Tensor& d_y) {
    each_chunk(c, [&](size_t, int64_t, int64_t row, int64_t at) {
      std::memset(row_of(d_y, at), 0, static_cast<size_t>(kHalo * row_bytes(d_y)));
      std::memcpy(row_of(d_y, at + kHalo), row_of(d_x, row), static_cast<size_t>(c.chunk() * row_bytes(d_x)));
    });
  });
}

template <int halos>
void infer(const OpCall& call, std::span<TensorMeta> out) {
  const ContextRows& c = *call.attr<ContextAttr>().rows;
  const Tensor& x = call.in[0];
  const int64_t extra = 2 * kHalo * c.sequences(), expected = c.count() + (halos > 0 ? 0 : extra);
  INGOT_CHECK(x.shape().rank() == 2 && x.dim(0) == expected, "{} of {} rows", x.meta.str(), expected);
  out[0] = {Shape{x.dim(0) + halos * extra, x.dim(1)}, x.dtype()};
}

/// Rows that another rank needs: every chunk's tail but the last one's, and the one that stays.
OpCost cost(const OpCall& call) {
  const ContextRows& c = *call.attr<ContextAttr>().rows;
  const Plan plan(c);
  int64_t rows = 0;
  for (int r = 0; r < c.ranks(); ++r) rows += r == c.rank() ? 0 : plan.send_to[static_cast<size_t>(r)];
  int64_t back = 0;
  for (int r = 0; r < c.ranks(); ++r) back += r == c.rank() ? 0 : plan.receive_from[static_cast<size_t>(r)];
  OpCost cost{0, 0, 0, tensor_bytes(call)};
  cost.wire_bytes[0] = static_cast<double>(rows * row_bytes(call.in[0]));
  cost.wire_bytes[1] = static_cast<double>(back * row_bytes(call.in[0]));
  return cost;
}
OpCost cost_drop(const OpCall& call) {
  return {0, 0, 0, tensor_bytes(call)};
}

int64_t gradient_bytes(const OpCall& call) {
  return !call.d_in.empty() && call.d_in[0].wanted() && call.d_in[0].accumulate ? call.d_in[0].tensor.bytes()
                                                                                : 0;
}
int64_t scratch(const OpCall& call) {
  const Tensor& wide = call.d_in.empty() ? call.in[0] : call.d_out[0];
  return wide.defined()
             ? 2 * messages(*call.attr<ContextAttr>().rows) * row_bytes(wide) + gradient_bytes(call)
             : 0;
}

std::string print(const void* attr) {
  const auto& a = *static_cast<const ContextAttr*>(attr);
  return fmt::format("{} chunks of {}", 2 * a.rows->sequences(), a.rows->chunk());
}

void dry_run(const OpCall& call, bool) {
  group_of(call.attr<ContextAttr>().comm).dry_run().wait();
}

}  // namespace

const Op& with_halo_op() {
  static const Op op{.name = "with_halo",
                     .inputs = {{"x"}},
                     .outputs = {{"y"}},
                     .reads = reads_nothing,
                     .infer = infer<1>,
                     .cost = cost,
                     .scratch_bytes = scratch,
                     .print = print,
                     .kernels = transfer_kernels(forward, backward),
                     .dry_run = dry_run,
                     .axis_rule = group_rule<ContextAttr>(kHeadwise, AxisType::rows, AxisType::halo, true)};
  return op;
}
const Op& without_halo_op() {
  static const Op op{.name = "without_halo",
                     .inputs = {{"y"}},
                     .outputs = {{"x"}},
                     .reads = reads_nothing,
                     .infer = infer<-1>,
                     .cost = cost_drop,
                     .scratch_bytes = gradient_bytes,
                     .print = print,
                     .kernels = transfer_kernels(forward_drop, backward_drop),
                     .axis_rule = group_rule<ContextAttr>(kHeadwise, AxisType::halo, AxisType::rows, true)};
  return op;
}

Value with_halo(Tape& tape, const ContextAttr& attr, const Value& x_TW) {
  return tape.apply(with_halo_op(), attr, {x_TW})[0];
}
Value without_halo(Tape& tape, const ContextAttr& attr, const Value& y_TW) {
  return tape.apply(without_halo_op(), attr, {y_TW})[0];
}

}  // namespace ingot
