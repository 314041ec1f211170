// See exchange.h.
#include "comm/exchange.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "comm/collective_work.h"

namespace ingot {
namespace {

constexpr int64_t kFirstMessage = 4000;                // bytes that transports send eagerly
constexpr int64_t kChunk = int64_t{1} << 19;           // bytes of a sum
constexpr int64_t kLongestMessage = int64_t{1} << 30;  // MPI counts in int
constexpr int64_t kDepth = 2;                          // chunks of a peer in scratch

}  // namespace

struct Exchange::Header {
  CommKind kind = CommKind::barrier;
  int root = 0;
  int64_t number = 0, step = -1;
  int64_t rows = 0;  ///< all_to_all: for the receiver
  TensorMeta in, out;
};

/// Requests to or from one peer, which finish in order.
struct Exchange::Lane {
  std::deque<Transport::Request> open;
  int64_t posted = 0;
  int64_t done = 0;
  void post(Transport::Request r) {
    open.push_back(r);
    ++posted;
  }
  void advance(Transport& t) {
    while (!open.empty() && t.done(open.front())) {
      open.pop_front();
      ++done;
    }
  }
};

struct Exchange::Peer {
  int rank = 0;
  bool to = true, from = true;  ///< directions in which data are sent
  std::unique_ptr<std::byte[]> sent, received;
  Lane first_send, first_recv, pieces_out, pieces_in, sums_out, sums_in;
  bool met = false;
  bool inlined = false;  ///< its piece came with the header
};

namespace {

/// Tags of an operation's lanes. Numbers repeat after 4096, long after the operation is over.
constexpr int kFirst = 0, kPieces = 1, kSums = 2;
int tag_of(const Operation& o, int lane) {
  return static_cast<int>(o.number % 4096) * 8 + (o.peer >= 0 ? 4 : 0) + lane;
}

}  // namespace

Exchange::Exchange(MessageGroup& group, CommRequest request, const Operation& operation,
                   FlightRecorder::Ticket ticket)
    : group_(group), request_(std::move(request)), operation_(operation), ticket_(ticket) {
  if (!is_message()) check_fits(group.rank, group.size(), request_);
  const bool broadcast = request_.kind == CommKind::broadcast;
  for (int i = 1; i < group.size(); ++i) {
    Peer p;
    p.rank = (group.rank + i) % group.size();  // every rank starts with another receiver
    if (is_message() && p.rank != operation.peer) continue;
    p.to = is_message() ? operation.sends : !broadcast || request_.root == group.rank;
    p.from = is_message() ? !operation.sends : !broadcast || request_.root == p.rank;
    if (p.to || p.from) peers_.push_back(std::move(p));
  }
  plan();
  for (Peer& p : peers_) {
    if (p.from) {
      p.received = std::make_unique_for_overwrite<std::byte[]>(kFirstMessage);
      p.first_recv.post(
          group_.transport->recv(p.rank, tag_of(operation_, kFirst), p.received.get(), kFirstMessage));
    }
    if (p.to) send_first(p);
  }
}

Exchange::~Exchange() = default;

void Exchange::plan() {
  const int64_t element = size_of(request_.in.dtype());
  chunk_ = reduces() ? kChunk / element * element : kLongestMessage;
  if (!reduces() || sums_whole() || peers_.empty()) return;
  const int64_t longest = std::min(chunk_, piece_of(group_.rank).bytes);
  scratch_ =
      std::make_unique_for_overwrite<std::byte[]>(peers_.size() * static_cast<size_t>(kDepth * longest));
}

/// A small all_reduce: every rank receives all operands with the headers and computes the whole sum.
bool Exchange::sums_whole() const {
  return request_.kind == CommKind::all_reduce &&
         request_.in.bytes() <= kFirstMessage - static_cast<int64_t>(sizeof(Header));
}

/// The part of a sum that this rank of the group computes, as bytes of `in`.
Exchange::Range Exchange::piece_of(int rank) const {
  const int64_t n = request_.in.numel(), size = group_.size(), element = size_of(request_.in.dtype());
  if (sums_whole()) return {0, n * element};
  if (request_.kind == CommKind::reduce_scatter && !request_.in_rows.empty()) {
    const auto first = request_.in_rows.begin();
    const int64_t width = row_bytes(request_.in);
    return {std::accumulate(first, first + rank, int64_t{0}) * width,
            request_.in_rows[static_cast<size_t>(rank)] * width};
  }
  const int64_t begin = n * rank / size, end = n * (rank + 1) / size;
  return {begin * element, (end - begin) * element};
}

Exchange::Range Exchange::sent_to(int rank) const {
  switch (request_.kind) {
    case CommKind::all_reduce:
    case CommKind::reduce_scatter:
      return piece_of(rank);
    case CommKind::all_to_all: {
      const auto first = request_.in_rows.begin();
      const int64_t width = row_bytes(request_.in), begin = std::accumulate(first, first + rank, int64_t{0});
      return {begin * width, request_.in_rows[static_cast<size_t>(rank)] * width};
    }
    case CommKind::barrier:
      return {};
    default:
      return {0, request_.in.bytes()};
  }
}

/// As bytes of `out`, or of this rank's own piece where pieces are summed.
Exchange::Range Exchange::received_from(int rank) const {
  switch (request_.kind) {
    case CommKind::all_reduce:
    case CommKind::reduce_scatter:
      return piece_of(group_.rank);
    case CommKind::all_gather:
      return {rank * request_.in.bytes(), request_.in.bytes()};
    case CommKind::all_to_all: {
      const auto first = request_.out_rows.begin();
      const int64_t width = row_bytes(request_.out), begin = std::accumulate(first, first + rank, int64_t{0});
      return {begin * width, request_.out_rows[static_cast<size_t>(rank)] * width};
    }
    case CommKind::barrier:
      return {};
    default:
      return {0, request_.out.bytes()};
  }
}

std::byte* Exchange::slot(size_t peer, int64_t chunk) const {
  const int64_t longest = std::min(chunk_, piece_of(group_.rank).bytes);
  return scratch_.get() + (static_cast<int64_t>(peer) * kDepth + chunk % kDepth) * longest;
}

void Exchange::send_first(Peer& p) {
  static_assert(std::is_trivially_copyable_v<Header>);
  Header h{request_.kind,    request_.root,    operation_.number, operation_.step, 0,
           request_.in.meta, request_.out.meta};
  if (request_.kind == CommKind::all_to_all) h.rows = request_.in_rows[static_cast<size_t>(p.rank)];
  const Range range = sent_to(p.rank);
  const auto head = static_cast<int64_t>(sizeof(Header));
  const int64_t inlined = range.bytes <= kFirstMessage - head ? range.bytes : 0;
  p.sent = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(head + inlined));
  std::memcpy(p.sent.get(), &h, sizeof(Header));
  if (inlined > 0) std::memcpy(p.sent.get() + head, in(range.begin), static_cast<size_t>(inlined));
  Transport& t = *group_.transport;
  p.first_send.post(t.send(p.rank, tag_of(operation_, kFirst), p.sent.get(), head + inlined));
  if (inlined > 0) return;
  for (int64_t c = 0; c < chunks(range); ++c)
    p.pieces_out.post(t.send(p.rank, tag_of(operation_, kPieces), in(range.begin + c * chunk_),
                             std::min(chunk_, range.bytes - c * chunk_)));
}

/// Reads a header that has arrived.
void Exchange::meet(Peer& p) {
  Header h;
  std::memcpy(&h, p.received.get(), sizeof(Header));
  CommRequest theirs;
  theirs.kind = h.kind;
  theirs.root = h.root;
  theirs.in.meta = h.in;
  theirs.out.meta = h.out;
  group_.last[static_cast<size_t>(p.rank)] =
      fmt::format("{} #{}{}", theirs.str(), h.number, h.step >= 0 ? fmt::format(" at step {}", h.step) : "");
  INGOT_CHECK(h.number == operation_.number, "operation {} met operation {}", operation_.number, h.number);
  if (is_message()) {
    if (!(h.in.shape == request_.out.shape()) || h.in.dtype != request_.out.dtype())
      fail("rank {} sends {}, rank {} receives {}", p.rank, h.in.str(), group_.rank, request_.out.meta.str());
  } else if (p.rank < group_.rank) {
    check_same(p.rank, theirs, group_.rank, request_);
  } else {
    check_same(group_.rank, request_, p.rank, theirs);
  }
  if (request_.kind == CommKind::all_to_all)
    check_rows(p.rank, h.rows, group_.rank, request_.out_rows[static_cast<size_t>(p.rank)]);
  p.met = true;
  const Range range = received_from(p.rank);
  p.inlined = range.bytes <= kFirstMessage - static_cast<int64_t>(sizeof(Header));
  if (p.inlined && !reduces() && range.bytes > 0)
    std::memcpy(out(range.begin), p.received.get() + sizeof(Header), static_cast<size_t>(range.bytes));
}

/// Posts the receives of a peer's piece that have memory to go to.
void Exchange::receive(Peer& p) {
  const Range range = received_from(p.rank);
  const int64_t n = chunks(range);
  const auto index = static_cast<size_t>(&p - peers_.data());
  while (p.pieces_in.posted < (reduces() ? std::min(n, summed_ + kDepth) : n)) {
    const int64_t c = p.pieces_in.posted;
    p.pieces_in.post(group_.transport->recv(p.rank, tag_of(operation_, kPieces),
                                            reduces() ? slot(index, c) : out(range.begin + c * chunk_),
                                            std::min(chunk_, range.bytes - c * chunk_)));
  }
}

/// Adds the next chunk of this rank's piece, and sends the sum on.
void Exchange::sum_next() {
  const Range own = piece_of(group_.rank);
  const int64_t at = summed_ * chunk_, bytes = std::min(chunk_, own.bytes - at);
  std::vector<const void*> operands(static_cast<size_t>(group_.size()));
  operands[static_cast<size_t>(group_.rank)] = in(own.begin + at);
  for (size_t i = 0; i < peers_.size(); ++i)
    operands[static_cast<size_t>(peers_[i].rank)] =
        peers_[i].inlined ? peers_[i].received.get() + sizeof(Header) : slot(i, summed_);
  const bool all = request_.kind == CommKind::all_reduce;
  std::byte* to = out(all ? own.begin + at : at);
  sum_in_rank_order(to, operands, bytes / size_of(request_.in.dtype()), request_.in.dtype());
  ++summed_;
  if (!all || sums_whole()) return;
  for (Peer& p : peers_)
    p.sums_out.post(group_.transport->send(p.rank, tag_of(operation_, kSums), to, bytes));
}

/// Receives the sums of a peer's piece, each into the memory of the operand that was sent for it.
void Exchange::gather_sums(Peer& p) {
  const Range theirs = piece_of(p.rank);
  const int64_t ready = p.pieces_out.posted > 0 ? p.pieces_out.done
                        : p.first_send.done > 0 ? chunks(theirs)
                                                : 0;
  while (p.sums_in.posted < ready) {
    const int64_t c = p.sums_in.posted;
    p.sums_in.post(group_.transport->recv(p.rank, tag_of(operation_, kSums), out(theirs.begin + c * chunk_),
                                          std::min(chunk_, theirs.bytes - c * chunk_)));
  }
}

/// Copies what this rank sends to itself, and zeroes rows that nobody sends.
void Exchange::copy_own() {
  copied_own_ = true;
  if (request_.kind != CommKind::all_gather && request_.kind != CommKind::all_to_all) return;
  const Range from = sent_to(group_.rank), to = received_from(group_.rank);
  if (request_.kind == CommKind::all_to_all) {
    const auto me = static_cast<size_t>(group_.rank);
    check_rows(group_.rank, request_.in_rows[me], group_.rank, request_.out_rows[me]);
  }
  if (from.bytes > 0) std::memmove(out(to.begin), in(from.begin), static_cast<size_t>(from.bytes));
  if (request_.kind == CommKind::all_gather) return;
  const int64_t used = std::accumulate(request_.out_rows.begin(), request_.out_rows.end(), int64_t{0}) *
                       row_bytes(request_.out);
  if (request_.out.bytes() > used)
    std::memset(out(used), 0, static_cast<size_t>(request_.out.bytes() - used));
}

bool Exchange::owes_piece(const Peer& p) const {
  return p.from && p.met && !p.inlined && p.pieces_in.done < chunks(received_from(p.rank));
}

bool Exchange::owes_sums(const Peer& p) const {
  return request_.kind == CommKind::all_reduce && !sums_whole() && p.sums_in.done < chunks(piece_of(p.rank));
}

bool Exchange::progress() {
  if (complete_) return true;
  Transport& t = *group_.transport;
  bool all_met = true, open = false;
  for (Peer& p : peers_) {
    for (Lane* lane : {&p.first_send, &p.first_recv, &p.pieces_out, &p.pieces_in, &p.sums_out, &p.sums_in})
      lane->advance(t);
    if (p.from && !p.met && p.first_recv.done > 0) meet(p);
    if (p.from && !p.met) all_met = false;
    if (p.from && p.met && !p.inlined) receive(p);
    if (request_.kind == CommKind::all_reduce && !sums_whole()) gather_sums(p);
  }
  if (!copied_own_) copy_own();
  const int64_t sums = reduces() ? chunks(piece_of(group_.rank)) : 0;
  while (all_met && summed_ < sums && std::all_of(peers_.begin(), peers_.end(), [&](const Peer& p) {
           return p.inlined || p.pieces_in.done > summed_;
         }))
    sum_next();
  for (const Peer& p : peers_) {
    for (const Lane* lane : {&p.first_send, &p.pieces_out, &p.sums_out}) open |= !lane->open.empty();
    open |= owes_piece(p) || owes_sums(p);
  }
  complete_ = all_met && !open && summed_ == sums;
  return complete_;
}

std::vector<int> Exchange::ranks_where(const std::function<bool(const Peer&)>& holds) const {
  std::vector<int> ranks;
  for (const Peer& p : peers_)
    if (holds(p)) ranks.push_back(p.rank);
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

Awaited Exchange::awaited() const {
  if (auto r = ranks_where([](const Peer& p) { return p.from && !p.met; }); !r.empty())
    return {std::move(r), Awaited::For::start};
  if (auto r = ranks_where([&](const Peer& p) { return owes_piece(p); }); !r.empty())
    return {std::move(r), Awaited::For::data};
  if (auto r = ranks_where([&](const Peer& p) { return owes_sums(p); }); !r.empty())
    return {std::move(r), Awaited::For::data};
  return {ranks_where([](const Peer& p) {
            return !p.first_send.open.empty() || !p.pieces_out.open.empty() || !p.sums_out.open.empty();
          }),
          Awaited::For::receipt};
}

}  // namespace ingot
