// See collective.h: the four ops. Each is one transfer forward and its adjoint backward.
#include "ops/collective/collective.h"

#include <algorithm>
#include <cstring>

#include "ops/collective/transfer.h"
#include "ops/reference.h"

namespace ingot {

Communicator& group_of(Communicator* comm) {
  static thread_local const std::unique_ptr<Communicator> alone = self_communicator("self");
  return comm != nullptr ? *comm : *alone;
}

namespace {

template <class T>
void add(const Tensor& to, const Tensor& from) {
  T* y = to.as<T>();
  const T* x = from.as<T>();
  for (int64_t i = 0; i < to.numel(); ++i) {
    if constexpr (std::is_same_v<T, bf16>)
      y[i] = to_bf16(to_float(y[i]) + to_float(x[i]));
    else
      y[i] += x[i];
  }
}

}  // namespace

void finish(const OpCall& call, Pending pending) {
  if (call.pending != nullptr)
    *call.pending = std::move(pending);
  else
    pending.wait();
}

Pending all_of(std::vector<Pending> transfers, std::function<void()> then) {
  class All final : public Pending::State {
   public:
    All(std::vector<Pending> transfers, std::function<void()> then)
        : transfers_(std::move(transfers)), then_(std::move(then)) {}
    void wait() override {
      for (Pending& p : transfers_) p.wait();
      if (then_) then_();
    }

   private:
    std::vector<Pending> transfers_;
    std::function<void()> then_;
  };
  return Pending(std::make_unique<All>(std::move(transfers), std::move(then)));
}

void add_tensor(const Tensor& to, const Tensor& from) {
  switch (to.dtype()) {
    case DType::f32:
      return add<float>(to, from);
    case DType::f64:
      return add<double>(to, from);
    case DType::bf16:
      return add<bf16>(to, from);
    default:
      INGOT_CHECK(false, "gradient {}", to.meta.str());
  }
}

namespace {

using Transfer = Pending (*)(const CollectiveAttr& a, const Tensor& from, const Tensor& to);

Pending keep(const CollectiveAttr&, const Tensor& from, const Tensor& to) {
  if (from.bytes() > 0) std::memcpy(to.data, from.data, static_cast<size_t>(from.bytes()));
  return {};
}
Pending sum(const CollectiveAttr& a, const Tensor& from, const Tensor& to) {
  return group_of(a.comm).all_reduce(from, to);
}
Pending gather(const CollectiveAttr& a, const Tensor& from, const Tensor& to) {
  return group_of(a.comm).all_gather(from, to);
}
Pending scatter(const CollectiveAttr& a, const Tensor& from, const Tensor& to) {
  return group_of(a.comm).reduce_scatter(from, to);
}

template <Transfer transfer>
void forward(const OpCall& call) {
  finish(call, transfer(call.attr<CollectiveAttr>(), call.in[0], call.out[0]));
}

/// A slot that accumulates receives through the scratch. An absent cotangent is refused: this rank alone
/// would not take part.
template <Transfer adjoint>
void backward(const OpCall& call) {
  const auto& a = call.attr<CollectiveAttr>();
  const Tensor& d_y = call.d_out[0];
  const GradSlot& d_x = call.d_in[0];
  INGOT_CHECK((d_y.defined() || d_y.numel() == 0) && d_x.wanted());
  receive_gradient(d_x, call.scratch, [&](const Tensor& to) { finish(call, adjoint(a, d_y, to)); });
}

enum class RowsChange { same, times, over };

template <RowsChange change>
void infer(const OpCall& call, std::span<TensorMeta> out) {
  const Tensor& x = call.in[0];
  const int64_t n = call.attr<CollectiveAttr>().size();
  INGOT_CHECK(x.shape().rank() >= 1, "{}", x.meta.str());
  INGOT_CHECK(change != RowsChange::over || x.dim(0) % n == 0, "{} rows over {} ranks", x.dim(0), n);
  Shape shape;
  shape.push_back(change == RowsChange::same    ? x.dim(0)
                  : change == RowsChange::times ? x.dim(0) * n
                                                : x.dim(0) / n);
  for (int d = 1; d < x.shape().rank(); ++d) shape.push_back(x.dim(d));
  out[0] = {shape, x.dtype()};
}

/// Bytes that this rank sends (a ring): 2 (n-1)/n of the tensor for a sum, (n-1)/n of the larger side for the
/// others.
template <int forward_parts, int backward_parts>
OpCost cost(const OpCall& call) {
  const double n = call.attr<CollectiveAttr>().size();
  const auto bytes = static_cast<double>(std::max(call.in[0].bytes(), call.out[0].bytes()));
  OpCost c{0, 0, 0, tensor_bytes(call)};
  c.wire_bytes[0] = forward_parts * (n - 1) / n * bytes;
  c.wire_bytes[1] = backward_parts * (n - 1) / n * bytes;
  return c;
}

BackwardReads reads(const void*) {
  return {};
}

template <bool forward_moves, bool backward_moves>
void dry_run(const OpCall& call, bool back) {
  if (back ? backward_moves : forward_moves)
    finish(call, group_of(call.attr<CollectiveAttr>().comm).dry_run());
}

int64_t first_local_row(const OpCall& call) {
  return group_of(call.attr<CollectiveAttr>().comm).rank() * call.in[0].dim(0);
}

int64_t scratch_bytes(const OpCall& call) {
  return !call.d_in.empty() && call.d_in[0].accumulate ? call.d_in[0].tensor.bytes() : 0;
}

std::string print(const void* attr) {
  const auto& a = *static_cast<const CollectiveAttr*>(attr);
  return a.comm != nullptr ? fmt::format("{} of {} ranks", a.comm->name(), a.comm->size()) : "one rank";
}

/// One kernel under both names: a transfer is exact for every type, and its sums are the communicator's.
template <Transfer transfer, Transfer adjoint>
std::vector<Kernel> kernels() {
  return {{"communicator", reference::accept, forward<transfer>, backward<adjoint>, nullptr},
          {"reference", reference::accept, forward<transfer>, backward<adjoint>, nullptr}};
}

Value record(Tape& tape, const Op& op, Communicator* axis, const Value& x) {
  if (axis == nullptr || axis->size() == 1) return x;
  return tape.apply(op, CollectiveAttr{axis}, {x}).front();
}

const Communicator* group(const void* attr) {
  return static_cast<const CollectiveAttr*>(attr)->comm;
}

AxisRule collective(AxisChange change) {
  return {.passes = kAnyAxisType, .on = AxisRule::On::group_axes, .change = change, .group = group};
}

}  // namespace

const Op& copy_to_axis_op() {
  static const Op op{.name = "copy_to_axis",
                     .inputs = {{"x"}},
                     .outputs = {{"y"}},
                     .reads = reads,
                     .infer = infer<RowsChange::same>,
                     .cost = cost<0, 2>,
                     .scratch_bytes = scratch_bytes,
                     .print = print,
                     .kernels = kernels<keep, sum>(),
                     .transfers = true,
                     .dry_run = dry_run<false, true>,
                     .axis_rule = collective({AxisType::replicate, AxisType::shared})};
  return op;
}

const Op& reduce_from_axis_op() {
  static const Op op{.name = "reduce_from_axis",
                     .inputs = {{"x"}},
                     .outputs = {{"y"}},
                     .reads = reads,
                     .infer = infer<RowsChange::same>,
                     .cost = cost<2, 0>,
                     .scratch_bytes = scratch_bytes,
                     .print = print,
                     .kernels = kernels<sum, keep>(),
                     .transfers = true,
                     .dry_run = dry_run<true, false>,
                     .axis_rule = collective({AxisType::partial, AxisType::replicate})};
  return op;
}

const Op& all_gather_rows_op() {
  static const Op op{.name = "all_gather_rows",
                     .inputs = {{"x"}},
                     .outputs = {{"y"}},
                     .reads = reads,
                     .infer = infer<RowsChange::times>,
                     .cost = cost<1, 1>,
                     .scratch_bytes = scratch_bytes,
                     .print = print,
                     .kernels = kernels<gather, scatter>(),
                     .transfers = true,
                     .first_local_row = first_local_row,
                     .dry_run = dry_run<true, true>,
                     .axis_rule = collective({AxisType::rows, AxisType::shared})};
  return op;
}

const Op& reduce_scatter_rows_op() {
  static const Op op{.name = "reduce_scatter_rows",
                     .inputs = {{"x"}},
                     .outputs = {{"y"}},
                     .reads = reads,
                     .infer = infer<RowsChange::over>,
                     .cost = cost<1, 1>,
                     .scratch_bytes = scratch_bytes,
                     .print = print,
                     .kernels = kernels<scatter, gather>(),
                     .transfers = true,
                     .dry_run = dry_run<true, true>,
                     .axis_rule = collective({AxisType::partial, AxisType::rows})};
  return op;
}

Value copy_to_axis(Tape& tape, Communicator* axis, const Value& x) {
  return record(tape, copy_to_axis_op(), axis, x);
}
Value reduce_from_axis(Tape& tape, Communicator* axis, const Value& x) {
  return record(tape, reduce_from_axis_op(), axis, x);
}
Value all_gather_rows(Tape& tape, Communicator* axis, const Value& x) {
  return record(tape, all_gather_rows_op(), axis, x);
}
Value reduce_scatter_rows(Tape& tape, Communicator* axis, const Value& x) {
  return record(tape, reduce_scatter_rows_op(), axis, x);
}

}  // namespace ingot
