// See collective.h: the four ops. Each is one transfer forward and its adjoint backward.
#include "ops/collective/collective.h"

#include <algorithm>
#include <cstring>

#include "comm/collective_work.h"
#include "ops/collective/transfer.h"
#include "ops/common.h"
#include "ops/reference.h"

namespace ingot {

Communicator& group_of(Communicator* comm) {
  static thread_local const std::unique_ptr<Communicator> alone = self_communicator("self");
  return comm != nullptr ? *comm : *alone;
}

std::string describe_group(const Communicator* comm) {
  return comm != nullptr ? fmt::format("{} of {} ranks", comm->name(), comm->size()) : "one rank";
}

std::vector<Kernel> transfer_kernels(void (*forward)(const OpCall&), void (*backward)(const OpCall&)) {
  return {{"communicator", reference::accept, forward, backward, nullptr},
          {"reference", reference::accept, forward, backward, nullptr}};
}

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
  const void* const both[] = {to.data, from.data};
  sum_in_rank_order(to.data, both, to.numel(), to.dtype());
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

template <Transfer transfer>
void infer(const OpCall& call, std::span<TensorMeta> out) {
  const Tensor& x = call.in[0];
  const int64_t n = call.attr<CollectiveAttr>().size();
  INGOT_CHECK(x.shape().rank() >= 1, "{}", x.meta.str());
  INGOT_CHECK(transfer != scatter || x.dim(0) % n == 0, "{} rows over {} ranks", x.dim(0), n);
  Shape shape;
  shape.push_back(transfer == gather ? x.dim(0) * n : transfer == scatter ? x.dim(0) / n : x.dim(0));
  for (int d = 1; d < x.shape().rank(); ++d) shape.push_back(x.dim(d));
  out[0] = {shape, x.dtype()};
}

/// Bytes that this rank sends (a ring): 2 (n-1)/n of the tensor for a sum, (n-1)/n of the larger side for the
/// others.
template <Transfer transfer, Transfer adjoint>
OpCost cost(const OpCall& call) {
  const auto parts = [](Transfer t) { return t == keep ? 0 : t == sum ? 2 : 1; };
  const double n = call.attr<CollectiveAttr>().size();
  const auto bytes = static_cast<double>(std::max(call.in[0].bytes(), call.out[0].bytes()));
  OpCost c{0, 0, 0, tensor_bytes(call)};
  c.wire_bytes[0] = parts(transfer) * (n - 1) / n * bytes;
  c.wire_bytes[1] = parts(adjoint) * (n - 1) / n * bytes;
  return c;
}

template <Transfer transfer, Transfer adjoint>
void dry_run(const OpCall& call, bool back) {
  if ((back ? adjoint : transfer) != keep) finish(call, group_of(call.attr<CollectiveAttr>().comm).dry_run());
}

int64_t first_local_row(const OpCall& call) {
  return group_of(call.attr<CollectiveAttr>().comm).rank() * call.in[0].dim(0);
}

int64_t scratch_bytes(const OpCall& call) {
  return !call.d_in.empty() && call.d_in[0].accumulate ? call.d_in[0].tensor.bytes() : 0;
}

std::string print(const void* attr) {
  return describe_group(static_cast<const CollectiveAttr*>(attr)->comm);
}

template <Transfer transfer, Transfer adjoint>
Op transfer_op(const char* name, AxisType from, AxisType to) {
  return {.name = name,
          .inputs = {{"x"}},
          .outputs = {{"y"}},
          .reads = reads_nothing,
          .infer = infer<transfer>,
          .cost = cost<transfer, adjoint>,
          .scratch_bytes = scratch_bytes,
          .print = print,
          .kernels = transfer_kernels(forward<transfer>, backward<adjoint>),
          .transfers = true,
          .first_local_row = transfer == gather ? first_local_row : nullptr,
          .dry_run = dry_run<transfer, adjoint>,
          .axis_rule = group_rule<CollectiveAttr>(kAnyAxisType, from, to)};
}

Value record(Tape& tape, const Op& op, Communicator* axis, const Value& x) {
  if (axis == nullptr || axis->size() == 1) return x;
  return tape.apply(op, CollectiveAttr{axis}, {x}).front();
}

}  // namespace

const Op& copy_to_axis_op() {
  static const Op op = transfer_op<keep, sum>("copy_to_axis", AxisType::replicate, AxisType::shared);
  return op;
}
const Op& reduce_from_axis_op() {
  static const Op op = transfer_op<sum, keep>("reduce_from_axis", AxisType::partial, AxisType::replicate);
  return op;
}
const Op& all_gather_rows_op() {
  static const Op op = transfer_op<gather, scatter>("all_gather_rows", AxisType::rows, AxisType::shared);
  return op;
}
const Op& reduce_scatter_rows_op() {
  static const Op op = transfer_op<scatter, gather>("reduce_scatter_rows", AxisType::partial, AxisType::rows);
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
