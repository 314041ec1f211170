// See exchange.h: both ops.
#include "ops/collective/exchange.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "ops/collective/transfer.h"
#include "ops/common.h"
#include "ops/reference.h"
#include "tensor/arena.h"

namespace ingot {
namespace {

using Numbers = std::vector<int64_t>;

/// The numbers of rows to or from every rank, block by block. Rows are sent in the order (rank, block); where
/// they arrived they are stored in the order (block, rank).
struct Counts {
  explicit Counts(const Tensor& t, int64_t ranks)
      : blocks(t.numel() / ranks), cells(t.as<int32_t>(), t.as<int32_t>() + t.numel()) {
    for (int64_t r = 0; r < ranks; ++r)
      by_rank.push_back(
          std::accumulate(cells.begin() + r * blocks, cells.begin() + (r + 1) * blocks, int64_t{0}));
  }
  int64_t total() const { return std::accumulate(by_rank.begin(), by_rank.end(), int64_t{0}); }
  int64_t blocks;
  Numbers cells;  ///< [ranks, blocks]
  Numbers by_rank;
};

int64_t width_of(const Tensor& t) {
  return t.dim(1) * size_of(t.dtype());
}
std::byte* row_of(const Tensor& t, int64_t row) {
  return static_cast<std::byte*>(t.data) + row * width_of(t);
}

/// The type in which a tensor's rows are sent.
DType wire_type(const ExchangeAttr& a, DType type) {
  return a.bf16 && type == DType::f32 ? DType::bf16 : type;
}

/// Copies rows, rounding or widening them where the types differ.
void copy_rows(const Tensor& from, int64_t source, const Tensor& to, int64_t target, int64_t rows) {
  const int64_t n = rows * to.dim(1);
  if (n == 0) return;
  if (from.dtype() == to.dtype()) {
    std::memcpy(row_of(to, target), row_of(from, source), static_cast<size_t>(rows * width_of(to)));
  } else if (to.dtype() == DType::bf16) {
    const auto* x = reinterpret_cast<const float*>(row_of(from, source));
    std::transform(x, x + n, reinterpret_cast<bf16*>(row_of(to, target)), [](float v) { return to_bf16(v); });
  } else {
    const auto* x = reinterpret_cast<const bf16*>(row_of(from, source));
    std::transform(x, x + n, reinterpret_cast<float*>(row_of(to, target)),
                   [](bf16 v) { return to_float(v); });
  }
}

enum class Reorder { to_sent, to_stored };

/// Copies rows into the other order; rows of `to` beyond them become zero.
void reorder(const Counts& c, Reorder direction, const Tensor& from, const Tensor& to) {
  const auto ranks = static_cast<int64_t>(c.by_rank.size());
  Numbers sent(c.cells.size() + 1, 0);
  std::partial_sum(c.cells.begin(), c.cells.end(), sent.begin() + 1);
  int64_t stored = 0;
  for (int64_t b = 0; b < c.blocks; ++b)
    for (int64_t r = 0; r < ranks; ++r) {
      const auto cell = static_cast<size_t>(r * c.blocks + b);
      const bool store = direction == Reorder::to_stored;
      copy_rows(from, store ? sent[cell] : stored, to, store ? stored : sent[cell], c.cells[cell]);
      stored += c.cells[cell];
    }
  if (const int64_t rest = to.dim(0) - stored; rest > 0)
    std::memset(row_of(to, stored), 0, static_cast<size_t>(rest * width_of(to)));
}

/// Tensors in the memory of a call's scratch.
class Scratch {
 public:
  explicit Scratch(void* memory) : next_(static_cast<std::byte*>(memory)) {}
  Tensor like(const TensorMeta& meta) {
    void* at = next_;
    next_ += round_up_block(meta.bytes());
    return Tensor(at, meta.shape, meta.dtype);
  }

 private:
  std::byte* next_;
};

/// Tells every rank how many rows it gets from this one; what comes from the others goes to `received`.
void exchange_counts(Communicator& comm, const Tensor& sent, const Tensor& received, int64_t capacity) {
  const Numbers one(static_cast<size_t>(comm.size()), 1);
  comm.all_to_all(sent, one, received, one).wait();
  const int64_t rows = Counts(received, comm.size()).total();
  if (rows > capacity)
    throw Error(fmt::format("rank {} of group '{}' gets {} rows, its capacity is {}", comm.rank(),
                            comm.name(), rows, capacity),
                "the ranks of an expert group must have equally many tokens; where the dispatch "
                "capacity is bounded, raise it, allow drops, or balance the routers");
}

/// A transfer that is started, then finished, between the ranks that grouped rows by rank (in the order in
/// which they are sent) and those that store them.
class Move {
 public:
  /// To the ranks that store the rows.
  static Move out(const ExchangeAttr& a, const Tensor& from, const Counts& sent, const Tensor& to,
                  const Counts& received, Scratch& scratch) {
    const DType wire = wire_type(a, from.dtype());
    Tensor source = from, arriving = to;
    if (wire != from.dtype())
      copy_rows(from, 0, source = scratch.like({from.shape(), wire}), 0, sent.total());
    if (wire != to.dtype() || received.blocks > 1) arriving = scratch.like({to.shape(), wire});
    return {group_of(a.comm).all_to_all(source, sent.by_rank, arriving, received.by_rank),
            source.data == from.data, arriving, to, received};
  }
  /// Back from there.
  static Move back(const ExchangeAttr& a, const Tensor& from, const Counts& sent, const Tensor& to,
                   const Counts& received, Scratch& scratch) {
    const DType wire = wire_type(a, from.dtype());
    Tensor source = from, arriving = to;
    if (wire != from.dtype() || sent.blocks > 1)
      reorder(sent, Reorder::to_sent, from, source = scratch.like({from.shape(), wire}));
    if (wire != to.dtype()) arriving = scratch.like({to.shape(), wire});
    Counts one_block = received;
    one_block.blocks = 1, one_block.cells = received.by_rank;
    return {group_of(a.comm).all_to_all(source, sent.by_rank, arriving, received.by_rank),
            source.data == from.data, arriving, to, one_block};
  }
  /// Neither end lies in scratch, so the transfer may outlive the call.
  bool direct() const { return from_tensor_ && arriving_.data == to_.data; }
  Pending take() { return std::move(pending_); }
  void finish() {
    pending_.wait();
    if (arriving_.data != to_.data) reorder(received_, Reorder::to_stored, arriving_, to_);
  }

 private:
  Move(Pending pending, bool from_tensor, const Tensor& arriving, const Tensor& to, const Counts& received)
      : pending_(std::move(pending)),
        from_tensor_(from_tensor),
        arriving_(arriving),
        to_(to),
        received_(received) {}
  Pending pending_;
  bool from_tensor_;
  Tensor arriving_, to_;
  Counts received_;
};

/// Leaves started moves to the caller where they may outlive the call and the caller can wait; else finishes
/// them. Then runs `last`.
void conclude(const OpCall& call, std::vector<Move> moves, std::function<void()> last = {}) {
  if (call.pending != nullptr &&
      std::all_of(moves.begin(), moves.end(), [](const Move& m) { return m.direct(); })) {
    std::vector<Pending> transfers;
    for (Move& m : moves) transfers.push_back(m.take());
    *call.pending = all_of(std::move(transfers), std::move(last));
    return;
  }
  for (Move& m : moves) m.finish();
  if (last) last();
}

void forward_exchange(const OpCall& call) {
  const auto& a = call.attr<ExchangeAttr>();
  Communicator& comm = group_of(a.comm);
  exchange_counts(comm, call.in[3], call.out[3], a.capacity);
  const Counts out(call.in[3], comm.size()), in(call.out[3], comm.size());
  ExchangeAttr exact = a;
  exact.bf16 = false;  // for the weights
  Scratch scratch(call.scratch);
  std::vector<Move> moves;
  for (size_t i = 0; i < 3; ++i)
    moves.push_back(Move::out(i == 0 ? a : exact, call.in[i], out, call.out[i], in, scratch));
  const int64_t rows = in.total(), k = call.out[2].dim(1);
  conclude(call, std::move(moves),
           [ids = call.out[2].as<int32_t>() + rows * k, count = (a.capacity - rows) * k] {
             std::fill_n(ids, count, -1);
           });
}

/// Memory for a slot that accumulates (see receive_gradient).
void* accumulation(const GradSlot& slot, Scratch& scratch) {
  return slot.accumulate ? scratch.like(slot.tensor.meta).data : nullptr;
}

/// Cotangents are sent back. An absent cotangent is refused: this rank alone would not take part.
void backward_exchange(const OpCall& call) {
  ExchangeAttr a = call.attr<ExchangeAttr>();
  const int size = group_of(a.comm).size();
  const Counts out(call.out[3], size), in(call.in[3], size);
  std::vector<Move> moves;  // side by side where no scratch is shared
  for (size_t i = 0; i < 2; ++i) {
    a.bf16 = a.bf16 && i == 0;
    if (!call.d_in[i].wanted()) continue;
    INGOT_CHECK(call.d_out[i].defined() || call.d_out[i].numel() == 0, "no cotangent for output {}", i);
    Scratch scratch(call.scratch);
    receive_gradient(call.d_in[i], accumulation(call.d_in[i], scratch), [&](const Tensor& to) {
      Move move = Move::back(a, call.d_out[i], out, to, in, scratch);
      if (call.pending == nullptr || !move.direct())
        move.finish();
      else
        moves.push_back(std::move(move));
    });
  }
  conclude(call, std::move(moves));
}

void forward_return(const OpCall& call) {
  const auto& a = call.attr<ExchangeAttr>();
  const int size = group_of(a.comm).size();
  Scratch scratch(call.scratch);
  std::vector<Move> moves;
  moves.push_back(
      Move::back(a, call.in[0], Counts(call.in[2], size), call.out[0], Counts(call.in[1], size), scratch));
  conclude(call, std::move(moves));
}

void backward_return(const OpCall& call) {
  const auto& a = call.attr<ExchangeAttr>();
  const int size = group_of(a.comm).size();
  INGOT_CHECK(call.d_in[0].wanted() && (call.d_out[0].defined() || call.d_out[0].numel() == 0));
  const Counts out(call.in[1], size), in(call.in[2], size);
  Scratch scratch(call.scratch);
  receive_gradient(call.d_in[0], accumulation(call.d_in[0], scratch), [&](const Tensor& to) {
    std::vector<Move> moves;
    moves.push_back(Move::out(a, call.d_out[0], out, to, in, scratch));
    conclude(call, std::move(moves));
  });
}

void check_counts(const ExchangeAttr& a, const Tensor& counts) {
  const int64_t n = a.comm != nullptr ? a.comm->size() : 1;
  INGOT_CHECK(counts.dtype() == DType::i32 && counts.shape().rank() <= 2 && counts.dim(0) == n,
              "counts {} of {} ranks", counts.meta.str(), n);
}

void infer_exchange(const OpCall& call, std::span<TensorMeta> out) {
  const auto& a = call.attr<ExchangeAttr>();
  const Tensor &rows = call.in[0], &probs = call.in[1], &ids = call.in[2];
  INGOT_CHECK(rows.shape().rank() == 2 && probs.shape().rank() == 2 && probs.shape() == ids.shape() &&
                  probs.dim(0) == rows.dim(0) && ids.dtype() == DType::i32,
              "rows {} probs {} ids {}", rows.meta.str(), probs.meta.str(), ids.meta.str());
  check_counts(a, call.in[3]);
  for (size_t i = 0; i < 3; ++i) out[i] = {Shape{a.capacity, call.in[i].dim(1)}, call.in[i].dtype()};
  out[3] = call.in[3].meta;
}

void infer_return(const OpCall& call, std::span<TensorMeta> out) {
  const auto& a = call.attr<ExchangeAttr>();
  INGOT_CHECK(call.in[0].shape().rank() == 2, "{}", call.in[0].meta.str());
  check_counts(a, call.in[1]);
  check_counts(a, call.in[2]);
  out[0] = {Shape{a.capacity, call.in[0].dim(1)}, call.in[0].dtype()};
}

double row_bytes(const ExchangeAttr& a, const Tensor& t) {
  return static_cast<double>(t.dim(1) * size_of(wire_type(a, t.dtype())));
}
double row_bytes(const Tensor& t) {
  return row_bytes({}, t);
}

OpCost cost_exchange(const OpCall& call) {
  const auto& a = call.attr<ExchangeAttr>();
  OpCost c{0, 0, 0, tensor_bytes(call)};
  const double floating = row_bytes(a, call.in[0]) + row_bytes(call.in[1]);
  c.wire_bytes[0] = a.rows_out * (floating + row_bytes(call.in[2])) +
                    4 * static_cast<double>(call.in[3].numel() - call.in[3].numel() / call.in[3].dim(0));
  c.wire_bytes[1] = a.rows_out * floating;
  return c;
}

OpCost cost_return(const OpCall& call) {
  OpCost c{0, 0, 0, tensor_bytes(call)};
  const auto& a = call.attr<ExchangeAttr>();
  c.wire_bytes[0] = c.wire_bytes[1] = a.rows_out * row_bytes(a, call.in[0]);
  return c;
}

/// A move's memory at most: both sides' rows, where they are rounded or reordered.
int64_t move_bytes(const ExchangeAttr& a, const TensorMeta& grouped, const TensorMeta& lying, bool blocks) {
  const DType wire = wire_type(a, lying.dtype);
  const bool rounded = wire != lying.dtype;
  return (rounded ? round_up_block(TensorMeta{grouped.shape, wire}.bytes()) : 0) +
         (rounded || blocks ? round_up_block(TensorMeta{lying.shape, wire}.bytes()) : 0);
}

bool has_blocks(const ExchangeAttr& a, const Tensor& counts) {
  return counts.numel() > group_of(a.comm).size();
}

int64_t scratch_exchange(const OpCall& call) {
  ExchangeAttr a = call.attr<ExchangeAttr>();
  const bool blocks = has_blocks(a, call.in[3]);
  int64_t sum = 0, most = 0;
  for (size_t i = 0; i < 3; ++i, a.bf16 = false) {
    if (call.d_in.empty()) {
      sum += move_bytes(a, call.in[i].meta, call.out[i].meta, blocks);
    } else if (call.d_in[i].wanted()) {
      const GradSlot& g = call.d_in[i];
      most = std::max(most, (g.accumulate ? round_up_block(g.tensor.bytes()) : 0) +
                                move_bytes(a, g.tensor.meta, call.d_out[i].meta, blocks));
    }
  }
  return call.d_in.empty() ? sum : most;
}

int64_t scratch_return(const OpCall& call) {
  const auto& a = call.attr<ExchangeAttr>();
  const bool blocks = has_blocks(a, call.in[1]);
  if (call.d_in.empty()) return move_bytes(a, call.out[0].meta, call.in[0].meta, blocks);
  const GradSlot& g = call.d_in[0];
  return (g.accumulate ? round_up_block(g.tensor.bytes()) : 0) +
         move_bytes(a, call.d_out[0].meta, g.tensor.meta, blocks);
}

std::string print(const void* attr) {
  const auto& a = *static_cast<const ExchangeAttr*>(attr);
  return describe_group(a.comm) + (a.comm != nullptr ? fmt::format(", capacity {}", a.capacity) : "");
}

/// A move with no end in scratch may outlive its call (Move::direct).
bool is_direct(const ExchangeAttr& a, const Tensor& rows, const Tensor& counts) {
  return wire_type(a, rows.dtype()) == rows.dtype() && !has_blocks(a, counts);
}

void dry_run(const OpCall& call, bool direct) {
  Pending moves = group_of(call.attr<ExchangeAttr>().comm).dry_run();
  if (direct)
    finish(call, std::move(moves));
  else
    moves.wait();
}

void dry_run_exchange(const OpCall& call, bool back) {
  ExchangeAttr a = call.attr<ExchangeAttr>();
  if (!back) {
    group_of(a.comm).dry_run().wait();  // the counts
    return dry_run(call, is_direct(a, call.in[0], call.in[3]));
  }
  for (size_t i = 0; i < 2; ++i, a.bf16 = false)
    if (call.d_in[i].wanted()) dry_run(call, is_direct(a, call.d_in[i].tensor, call.in[3]));
}

void dry_run_return(const OpCall& call, bool) {
  dry_run(call,
          is_direct(call.attr<ExchangeAttr>(), call.d_out.empty() ? call.out[0] : call.d_out[0], call.in[1]));
}

}  // namespace

const Op& exchange_rows_op() {
  static const Op op{.name = "exchange_rows",
                     .inputs = {{"rows"}, {"probs"}, {"ids", InputKind::data}, {"sent", InputKind::data}},
                     .outputs = {{"rows"}, {"probs"}, {"ids", false}, {"received", false}},
                     .reads = always<BackwardReads{.input_in = slot_bit(3), .input_out = slot_bit(3)}>,
                     .infer = infer_exchange,
                     .cost = cost_exchange,
                     .scratch_bytes = scratch_exchange,
                     .print = print,
                     .kernels = transfer_kernels(forward_exchange, backward_exchange),
                     .transfers = true,
                     .dry_run = dry_run_exchange,
                     .axis_rule = group_rule<ExchangeAttr>(kAnyAxisType, AxisType::rows, AxisType::shared)};
  return op;
}

const Op& return_rows_op() {
  static const Op op{.name = "return_rows",
                     .inputs = {{"y"}, {"sent", InputKind::data}, {"received", InputKind::data}},
                     .outputs = {{"y"}},
                     .reads = always<BackwardReads{.input_in = slot_bit(1) | slot_bit(2)}>,
                     .infer = infer_return,
                     .cost = cost_return,
                     .scratch_bytes = scratch_return,
                     .print = print,
                     .kernels = transfer_kernels(forward_return, backward_return),
                     .transfers = true,
                     .dry_run = dry_run_return,
                     .axis_rule = group_rule<ExchangeAttr>(kAnyAxisType, AxisType::partial, AxisType::rows)};
  return op;
}

Exchanged exchange_rows(Tape& tape, const ExchangeAttr& attr, const Value& rows_SD, const Value& probs_SK,
                        const Value& ids_SK, const Value& sent) {
  auto o = tape.apply(exchange_rows_op(), attr, {rows_SD, probs_SK, ids_SK, sent});
  return {std::move(o[0]), std::move(o[1]), std::move(o[2]), std::move(o[3])};
}

Value return_rows(Tape& tape, const ExchangeAttr& attr, const Value& y_AD, const Value& sent,
                  const Value& received) {
  return tape.apply(return_rows_op(), attr, {y_AD, sent, received}).front();
}

}  // namespace ingot
