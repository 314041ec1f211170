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

/// Which tails of this rank's two chunks go where, and which halos come from where. A message is one tail;
/// those of all sequences are packed by rank.
struct Plan {
  explicit Plan(const ContextRows& c) {
    send_to.assign(static_cast<size_t>(c.ranks()), 0), receive_from = send_to;
    for (const int64_t half : {0, 1}) {
      const int64_t chunk = half == 0 ? c.rank() : 2 * c.ranks() - 1 - c.rank(), tails = c.sequences();
      if (chunk + 1 < 2 * c.ranks())
        to[half] = c.owner(chunk + 1), send_to[static_cast<size_t>(to[half])] += tails;
      if (chunk > 0) from[half] = c.owner(chunk - 1), receive_from[static_cast<size_t>(from[half])] += tails;
    }
  }
  int to[2] = {-1, -1}, from[2] = {-1, -1};  ///< by half; -1: nobody
  std::vector<int64_t> send_to, receive_from;
};

/// The first message of a rank.
int64_t offset_of(const std::vector<int64_t>& messages, int rank) {
  int64_t at = 0;
  for (int r = 0; r < rank; ++r) at += messages[static_cast<size_t>(r)];
  return at;
}

int64_t messages(const ContextRows& c) {
  return 2 * c.sequences();
}

/// The columns of a tail that are sent, and how they lie in a message: `both` of each row, then `nearer`.
struct Columns {
  Columns(const HaloAttr& a, int64_t width)
      : both(a.both < 0 ? width : a.both), nearer(a.nearer), width(width) {
    INGOT_CHECK(both + nearer <= width, "{} and {} of {} columns", both, nearer, width);
  }
  int64_t both, nearer, width;
  int64_t count() const { return kHalo * both + nearer; }
  /// f(element of the tail, element of the message, elements)
  template <class F>
  void each_run(const F& f) const {
    for (int64_t row = 0; row < kHalo; ++row) f(row * width, row * both, both);
    f(kHalo * width - nearer, kHalo * both, nearer);
  }
};

Tensor run_of(const Tensor& t, int64_t row, int64_t element, int64_t count) {
  return Tensor(row_of(t, row) + element * size_of(t.dtype()), Shape{count}, t.dtype());
}
void copy(const Tensor& to, const Tensor& from) {
  if (to.numel() > 0) std::memcpy(to.data, from.data, static_cast<size_t>(to.bytes()));
}

/// f(half, sequence, row of the chunk's first token in x, row of the halo's first token in y)
template <class F>
void each_chunk(const ContextRows& c, const F& f) {
  for (int64_t i = 0; i < 2 * c.sequences(); ++i)
    f(static_cast<size_t>(i % 2), i / 2, i * c.chunk(), i * (c.chunk() + kHalo));
}

void forward(const OpCall& call) {
  const auto& a = call.attr<HaloAttr>();
  const ContextRows& c = *a.rows;
  const Tensor &x = call.in[0], &y = call.out[0];
  const Plan plan(c);
  const Columns columns(a, x.dim(1));
  const int64_t width = row_bytes(x);
  const Tensor out(call.scratch, Shape{messages(c), columns.count()}, x.dtype());
  const Tensor in(row_of(out, messages(c)), out.shape(), x.dtype());
  each_chunk(c, [&](size_t half, int64_t sequence, int64_t row, int64_t) {
    if (plan.to[half] < 0) return;
    const int64_t message = offset_of(plan.send_to, plan.to[half]) + sequence, tail = row + c.chunk() - kHalo;
    columns.each_run([&](int64_t from, int64_t to, int64_t n) {
      copy(run_of(out, message, to, n), run_of(x, tail, from, n));
    });
  });
  group_of(a.comm).all_to_all(out, plan.send_to, in, plan.receive_from).wait();
  each_chunk(c, [&](size_t half, int64_t sequence, int64_t row, int64_t at) {
    std::memset(row_of(y, at), 0, static_cast<size_t>(kHalo * width));
    if (plan.from[half] >= 0) {
      const int64_t message = offset_of(plan.receive_from, plan.from[half]) + sequence;
      columns.each_run([&](int64_t to, int64_t from, int64_t n) {
        copy(run_of(y, at, to, n), run_of(in, message, from, n));
      });
    }
    std::memcpy(row_of(y, at + kHalo), row_of(x, row), static_cast<size_t>(c.chunk() * width));
  });
}

void backward(const OpCall& call) {
  const auto& a = call.attr<HaloAttr>();
  const ContextRows& c = *a.rows;
  const Tensor& d_y = call.d_out[0];
  INGOT_CHECK(d_y.defined() && call.d_in[0].wanted());
  const Plan plan(c);
  const Columns columns(a, d_y.dim(1));
  const Tensor out(call.scratch, Shape{messages(c), columns.count()}, d_y.dtype());
  const Tensor in(row_of(out, messages(c)), out.shape(), d_y.dtype());
  each_chunk(c, [&](size_t half, int64_t sequence, int64_t, int64_t at) {
    if (plan.from[half] < 0) return;
    const int64_t message = offset_of(plan.receive_from, plan.from[half]) + sequence;
    columns.each_run([&](int64_t from, int64_t to, int64_t n) {
      copy(run_of(out, message, to, n), run_of(d_y, at, from, n));
    });
  });
  group_of(a.comm).all_to_all(out, plan.receive_from, in, plan.send_to).wait();
  receive_gradient(call.d_in[0], row_of(in, messages(c)), [&](const Tensor& d_x) {
    each_chunk(c, [&](size_t half, int64_t sequence, int64_t row, int64_t at) {
      std::memcpy(row_of(d_x, row), row_of(d_y, at + kHalo), static_cast<size_t>(c.chunk() * row_bytes(d_y)));
      if (plan.to[half] < 0) return;
      const int64_t message = offset_of(plan.send_to, plan.to[half]) + sequence,
                    tail = row + c.chunk() - kHalo;
      columns.each_run([&](int64_t to, int64_t from, int64_t n) {
        add_tensor(run_of(d_x, tail, to, n), run_of(in, message, from, n));
      });
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

/// Tails that another rank needs: every chunk's but the last one's, and the one that stays.
OpCost cost(const OpCall& call) {
  const auto& a = call.attr<HaloAttr>();
  const ContextRows& c = *a.rows;
  const Plan plan(c);
  int64_t sent = 0, back = 0;
  for (int r = 0; r < c.ranks(); ++r) {
    if (r == c.rank()) continue;
    sent += plan.send_to[static_cast<size_t>(r)];
    back += plan.receive_from[static_cast<size_t>(r)];
  }
  OpCost cost{0, 0, 0, tensor_bytes(call)};
  const int64_t bytes = Columns(a, call.in[0].dim(1)).count() * size_of(call.in[0].dtype());
  cost.wire_bytes[0] = static_cast<double>(sent * bytes);
  cost.wire_bytes[1] = static_cast<double>(back * bytes);
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
  if (!wide.defined()) return 0;
  const auto& a = call.attr<HaloAttr>();
  return 2 * messages(*a.rows) * Columns(a, wide.dim(1)).count() * size_of(wide.dtype()) +
         gradient_bytes(call);
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

Value with_halo(Tape& tape, const HaloAttr& attr, const Value& x_TW) {
  return tape.apply(with_halo_op(), attr, {x_TW})[0];
}
Value without_halo(Tape& tape, const ContextAttr& attr, const Value& y_TW) {
  return tape.apply(without_halo_op(), attr, {y_TW})[0];
}

}  // namespace ingot
