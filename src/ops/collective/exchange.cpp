// See exchange.h: both ops.
#include "ops/collective/exchange.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "ops/collective/transfer.h"
#include "ops/reference.h"

namespace ingot {
namespace {

using Counts = std::vector<int64_t>;

Counts counts_of(const Tensor& t) { return {t.as<int32_t>(), t.as<int32_t>() + t.numel()}; }

/// Tells every rank how many rows it gets from this one; what comes from the others goes to `received`.
void exchange_counts(Communicator& comm, const Tensor& sent, const Tensor& received, int64_t room) {
  const Counts one(static_cast<size_t>(comm.size()), 1);
  comm.all_to_all(sent, one, received, one).wait();
  const Counts counts = counts_of(received);
  const int64_t rows = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  if (rows > room)
    throw Error(fmt::format("rank {} of group '{}' gets {} rows, it has room for {}", comm.rank(), comm.name(), rows, room),
                "the ranks of an expert group must have equally many tokens");
}

void forward_exchange(const OpCall& call) {
  const auto& a = call.attr<ExchangeAttr>();
  Communicator& comm = group_of(a.comm);
  exchange_counts(comm, call.in[3], call.out[3], a.room);
  const Counts out = counts_of(call.in[3]), in = counts_of(call.out[3]);
  Pending moves[] = {comm.all_to_all(call.in[0], out, call.out[0], in), comm.all_to_all(call.in[1], out, call.out[1], in),
                     comm.all_to_all(call.in[2], out, call.out[2], in)};
  for (Pending& p : moves) p.wait();
  const int64_t rows = std::accumulate(in.begin(), in.end(), int64_t{0}), k = call.out[2].dim(1);
  std::fill_n(call.out[2].as<int32_t>() + rows * k, (a.room - rows) * k, -1);
}

/// Cotangents travel the way back. One that is absent would silence one rank only: refused.
void backward_exchange(const OpCall& call) {
  Communicator& comm = group_of(call.attr<ExchangeAttr>().comm);
  const Counts out = counts_of(call.out[3]), in = counts_of(call.in[3]);
  for (size_t i = 0; i < 2; ++i) {
    if (!call.d_in[i].wanted()) continue;
    INGOT_CHECK(call.d_out[i].defined() || call.d_out[i].numel() == 0, "no cotangent for output {}", i);
    receive_gradient(call.d_in[i], call.scratch,
                     [&](const Tensor& to) { comm.all_to_all(call.d_out[i], out, to, in).wait(); });
  }
}

void forward_return(const OpCall& call) {
  Communicator& comm = group_of(call.attr<ExchangeAttr>().comm);
  comm.all_to_all(call.in[0], counts_of(call.in[2]), call.out[0], counts_of(call.in[1])).wait();
}

void backward_return(const OpCall& call) {
  Communicator& comm = group_of(call.attr<ExchangeAttr>().comm);
  INGOT_CHECK(call.d_in[0].wanted() && (call.d_out[0].defined() || call.d_out[0].numel() == 0));
  const Counts out = counts_of(call.in[1]), in = counts_of(call.in[2]);
  receive_gradient(call.d_in[0], call.scratch, [&](const Tensor& to) { comm.all_to_all(call.d_out[0], out, to, in).wait(); });
}

void check_counts(const ExchangeAttr& a, const Tensor& counts) {
  const int64_t n = a.comm != nullptr ? a.comm->size() : 1;
  INGOT_CHECK(counts.dtype() == DType::i32 && counts.shape() == Shape{n}, "counts {} of {} ranks", counts.meta.str(), n);
}

void infer_exchange(const OpCall& call, std::span<TensorMeta> out) {
  const auto& a = call.attr<ExchangeAttr>();
  const Tensor &rows = call.in[0], &probs = call.in[1], &ids = call.in[2];
  INGOT_CHECK(rows.shape().rank() == 2 && probs.shape().rank() == 2 && probs.shape() == ids.shape() &&
                  probs.dim(0) == rows.dim(0) && ids.dtype() == DType::i32,
              "rows {} probs {} ids {}", rows.meta.str(), probs.meta.str(), ids.meta.str());
  check_counts(a, call.in[3]);
  for (size_t i = 0; i < 3; ++i) out[i] = {Shape{a.room, call.in[i].dim(1)}, call.in[i].dtype()};
  out[3] = call.in[3].meta;
}

void infer_return(const OpCall& call, std::span<TensorMeta> out) {
  const auto& a = call.attr<ExchangeAttr>();
  INGOT_CHECK(call.in[0].shape().rank() == 2, "{}", call.in[0].meta.str());
  check_counts(a, call.in[1]);
  check_counts(a, call.in[2]);
  out[0] = {Shape{a.room, call.in[0].dim(1)}, call.in[0].dtype()};
}

double row_bytes(const Tensor& t) { return static_cast<double>(t.dim(1) * size_of(t.dtype())); }

OpCost cost_exchange(const OpCall& call) {
  const auto& a = call.attr<ExchangeAttr>();
  OpCost c{0, 0, 0, tensor_bytes(call)};
  const double floating = row_bytes(call.in[0]) + row_bytes(call.in[1]);
  c.wire_bytes[0] = a.rows_out * (floating + row_bytes(call.in[2])) + 4 * static_cast<double>(call.in[3].dim(0) - 1);
  c.wire_bytes[1] = a.rows_out * floating;
  return c;
}

OpCost cost_return(const OpCall& call) {
  OpCost c{0, 0, 0, tensor_bytes(call)};
  c.wire_bytes[0] = c.wire_bytes[1] = call.attr<ExchangeAttr>().rows_out * row_bytes(call.in[0]);
  return c;
}

BackwardReads reads_exchange(const void*) {
  BackwardReads r;
  r.input_in = slot_bit(3);
  r.input_out = slot_bit(3);
  return r;
}

BackwardReads reads_return(const void*) {
  BackwardReads r;
  r.input_in = slot_bit(1) | slot_bit(2);
  return r;
}

int64_t scratch_bytes(const OpCall& call) {
  int64_t bytes = 0;
  for (const GradSlot& g : call.d_in)
    if (g.wanted() && g.accumulate) bytes = std::max(bytes, g.tensor.bytes());
  return bytes;
}

std::string print(const void* attr) {
  const auto& a = *static_cast<const ExchangeAttr*>(attr);
  return a.comm != nullptr ? fmt::format("{} of {} ranks, room {}", a.comm->name(), a.comm->size(), a.room) : "one rank";
}

/// One kernel under both names, as in collective.cpp.
std::vector<Kernel> kernels(void (*forward)(const OpCall&), void (*backward)(const OpCall&)) {
  return {{"communicator", reference::accept, forward, backward, nullptr},
          {"reference", reference::accept, forward, backward, nullptr}};
}

}  // namespace

const Op& exchange_rows_op() {
  static const Op op{"exchange_rows",
                     {{"rows"}, {"probs"}, {"ids", InputKind::data}, {"sent", InputKind::data}},
                     {{"rows"}, {"probs"}, {"ids", false}, {"received", false}},
                     reads_exchange,
                     infer_exchange,
                     cost_exchange,
                     scratch_bytes,
                     print,
                     kernels(forward_exchange, backward_exchange)};
  return op;
}

const Op& return_rows_op() {
  static const Op op{"return_rows",
                     {{"y"}, {"sent", InputKind::data}, {"received", InputKind::data}},
                     {{"y"}},
                     reads_return,
                     infer_return,
                     cost_return,
                     scratch_bytes,
                     print,
                     kernels(forward_return, backward_return)};
  return op;
}

Exchanged exchange_rows(Tape& tape, const ExchangeAttr& attr, const Value& rows_SD, const Value& probs_SK,
                        const Value& ids_SK, const Value& sent) {
  auto o = tape.apply(exchange_rows_op(), attr, {rows_SD, probs_SK, ids_SK, sent});
  return {std::move(o[0]), std::move(o[1]), std::move(o[2]), std::move(o[3])};
}

Value return_rows(Tape& tape, const ExchangeAttr& attr, const Value& y_AD, const Value& sent, const Value& received) {
  return tape.apply(return_rows_op(), attr, {y_AD, sent, received}).front();
}

}  // namespace ingot
