// See shared_transport.h.
#include "comm/shared_transport.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace ingot {
namespace {

constexpr int kStreams = 4;  // per pair of ranks
constexpr int64_t kLine = 64;
constexpr int64_t kStep = int64_t{32} << 10;  // bytes after which the counter is published

/// Tags of Exchange: bit 2 is set for a single message; bits 0 and 1 are the lane, of which lane 0 has short
/// messages.
int stream_of(int tag) {
  return (tag >> 2 & 1) * 2 + std::max((tag & 3) - 1, 0);
}

struct Frame {
  int32_t tag = 0;
  int64_t bytes = 0;
};

}  // namespace

/// Total bytes written and read; each counter has one writer.
struct SharedTransport::Counters {
  alignas(kLine) std::atomic<uint64_t> written = 0;
  alignas(kLine) std::atomic<uint64_t> taken = 0;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

/// 1 MiB with few ranks (256 KiB was slower than messages in sums of 1 to 16 MiB); else the outgoing rings of
/// a rank take 8 MiB together, and each at least 32 KiB.
int64_t SharedTransport::ring_bytes(int ranks) {
  const int64_t all = int64_t{8} << 20, peers = std::max(1, ranks - 1);
  return std::clamp(all / (peers * kStreams) / kStep * kStep, kStep, int64_t{32} * kStep);
}

int64_t SharedTransport::region_bytes(int ranks) {
  return static_cast<int64_t>(ranks) * kStreams *
         (static_cast<int64_t>(sizeof(Counters)) + ring_bytes(ranks));
}

void SharedTransport::prepare(std::byte* region, int ranks) {
  for (int i = 0; i < ranks * kStreams; ++i)
    new (region + i * static_cast<int64_t>(sizeof(Counters))) Counters;
}

SharedTransport::SharedTransport(int rank, std::vector<std::byte*> regions, std::unique_ptr<Transport> others)
    : rank_(rank),
      regions_(std::move(regions)),
      others_(std::move(others)),
      ring_(static_cast<uint64_t>(ring_bytes(static_cast<int>(regions_.size())))) {
  const auto ranks = static_cast<int64_t>(regions_.size());
  out_.resize(static_cast<size_t>(ranks * kStreams));
  in_.resize(out_.size());
  const auto ring = [&](std::byte* region, int64_t to, int64_t stream) {
    const int64_t i = to * kStreams + stream;
    return End{
        std::launder(reinterpret_cast<Counters*>(region + i * static_cast<int64_t>(sizeof(Counters)))),
        region + ranks * kStreams * static_cast<int64_t>(sizeof(Counters)) + i * static_cast<int64_t>(ring_),
        {},
        -1,
        0};
  };
  for (int64_t peer = 0; peer < ranks; ++peer)
    for (int64_t s = 0; s < kStreams && regions_[static_cast<size_t>(peer)] != nullptr; ++s) {
      out_[static_cast<size_t>(peer * kStreams + s)] = ring(regions_[static_cast<size_t>(rank_)], peer, s);
      in_[static_cast<size_t>(peer * kStreams + s)] = ring(regions_[static_cast<size_t>(peer)], rank_, s);
    }
}

bool SharedTransport::shares_memory(int rank, int64_t bytes) const {
  return bytes > kShort && regions_[static_cast<size_t>(rank)] != nullptr;
}

Transport::Request SharedTransport::post(Message message) {
  if (free_.empty()) {
    free_.push_back(slots_.size());
    slots_.emplace_back();
  }
  const size_t slot = free_.back();
  free_.pop_back();
  slots_[slot] = std::move(message);
  return slot * 2 + 1;  // requests of the other transport are even
}

Transport::Request SharedTransport::send(int to, int tag, const void* data, int64_t bytes) {
  if (!shares_memory(to, bytes)) return others_->send(to, tag, data, bytes) * 2;
  End& end = out_[static_cast<size_t>(to * kStreams + stream_of(tag))];
  const Request request = post(
      {&end, true, false, tag, const_cast<std::byte*>(static_cast<const std::byte*>(data)), bytes, 0, false});
  end.queue.push_back(request / 2);
  push(end);
  return request;
}

Transport::Request SharedTransport::recv(int from, int tag, void* data, int64_t bytes) {
  if (!shares_memory(from, bytes)) return others_->recv(from, tag, data, bytes) * 2;
  return post({&in_[static_cast<size_t>(from * kStreams + stream_of(tag))], false, false, tag,
               static_cast<std::byte*>(data), bytes, 0, false});
}

bool SharedTransport::done(Request request) {
  if (request % 2 == 0) return others_->done(request / 2);
  Message& m = slots_[request / 2];
  if (m.sends)
    push(*m.end);
  else
    take(m);
  if (m.finished) free_.push_back(request / 2);
  return m.finished;
}

void SharedTransport::push(End& end) {
  while (!end.queue.empty() && push(slots_[end.queue.front()])) end.queue.pop_front();
}

/// Writes what fits; true when all of it is in the ring.
bool SharedTransport::push(Message& m) {
  Counters& c = *m.end->counters;
  uint64_t written = c.written.load(std::memory_order_relaxed);
  const auto free_bytes = [&] {
    return static_cast<int64_t>(ring_ - (written - c.taken.load(std::memory_order_acquire)));
  };
  if (!m.announced) {
    const Frame frame{m.tag, m.bytes};
    if (free_bytes() < static_cast<int64_t>(sizeof frame)) return false;
    write(*m.end, written, &frame, sizeof frame);
    written += sizeof frame;
    m.announced = true;
  }
  while (m.moved < m.bytes) {
    const int64_t part = std::min({free_bytes(), m.bytes - m.moved, kStep});
    if (part == 0) break;
    write(*m.end, written, m.data + m.moved, part);
    m.moved += part;
    c.written.store(written += static_cast<uint64_t>(part), std::memory_order_release);
  }
  c.written.store(written, std::memory_order_release);
  return m.finished = m.moved == m.bytes;
}

/// Reads what has arrived of a message, if the frame at the head of the ring is its own.
void SharedTransport::take(Message& m) {
  End& end = *m.end;
  Counters& c = *end.counters;
  uint64_t taken = c.taken.load(std::memory_order_relaxed);
  const auto arrived = [&] {
    return static_cast<int64_t>(c.written.load(std::memory_order_acquire) - taken);
  };
  if (end.tag < 0) {
    Frame frame;
    if (arrived() < static_cast<int64_t>(sizeof frame)) return;
    read(end, taken, &frame, sizeof frame);
    c.taken.store(taken += sizeof frame, std::memory_order_release);
    end.tag = frame.tag;
    end.bytes = frame.bytes;
  }
  if (end.tag != m.tag) return;
  INGOT_CHECK(end.bytes == m.bytes, "a message of {} bytes for {}", end.bytes, m.bytes);
  while (m.moved < m.bytes) {
    const int64_t part = std::min({arrived(), m.bytes - m.moved, kStep});
    if (part == 0) return;
    read(end, taken, m.data + m.moved, part);
    m.moved += part;
    c.taken.store(taken += static_cast<uint64_t>(part), std::memory_order_release);
  }
  end.tag = -1;
  m.finished = true;
}

void SharedTransport::write(End& end, uint64_t at, const void* from, int64_t bytes) const {
  const uint64_t begin = at % ring_, first = std::min(static_cast<uint64_t>(bytes), ring_ - begin);
  std::memcpy(end.data + begin, from, first);
  std::memcpy(end.data, static_cast<const std::byte*>(from) + first, static_cast<uint64_t>(bytes) - first);
}

void SharedTransport::read(const End& end, uint64_t at, void* to, int64_t bytes) const {
  const uint64_t begin = at % ring_, first = std::min(static_cast<uint64_t>(bytes), ring_ - begin);
  std::memcpy(to, end.data + begin, first);
  std::memcpy(static_cast<std::byte*>(to) + first, end.data, static_cast<uint64_t>(bytes) - first);
}

}  // namespace ingot
