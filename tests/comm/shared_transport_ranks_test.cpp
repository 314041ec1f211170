// Messages through shared memory, between threads: what arrives, in which order, and what goes another way.
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "comm/shared_transport.h"

namespace ingot::shared_transport_ranks_test {

/// Counts what it is given; its requests are never done.
class Elsewhere final : public Transport {
 public:
  explicit Elsewhere(int& messages) : messages_(messages) {}
  Request send(int, int, const void*, int64_t) override { return static_cast<Request>(messages_++); }
  Request recv(int, int, void*, int64_t) override { return static_cast<Request>(messages_++); }
  bool done(Request) override { return false; }

 private:
  int& messages_;
};

/// The ranks of one node.
class Node {
 public:
  explicit Node(int ranks)
      : memory_(static_cast<size_t>(ranks), nullptr), elsewhere(static_cast<size_t>(ranks), 0) {
    for (std::byte*& region : memory_) {
      region = static_cast<std::byte*>(
          std::aligned_alloc(64, static_cast<size_t>(SharedTransport::region_bytes(ranks))));
      SharedTransport::prepare(region, ranks);
    }
  }
  ~Node() {
    for (std::byte* region : memory_) std::free(region);
  }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  /// `far`: a rank on another node, or -1.
  SharedTransport join(int rank, int far = -1) {
    std::vector<std::byte*> regions(memory_.begin(), memory_.end());
    if (far >= 0) regions[static_cast<size_t>(far)] = nullptr;
    return {rank, std::move(regions), std::make_unique<Elsewhere>(elsewhere[static_cast<size_t>(rank)])};
  }

 private:
  std::vector<std::byte*> memory_;

 public:
  std::vector<int> elsewhere;  ///< messages of each rank that went another way
};

constexpr int kPieces = 1, kSums = 2, kSingle = 5;
int tag(int operation, int stream) {
  return operation * 8 + stream;
}

/// What `from` sends to `to` under a tag.
std::vector<uint8_t> content(int from, int to, int tag, int64_t bytes) {
  std::vector<uint8_t> data(static_cast<size_t>(bytes));
  for (size_t i = 0; i < data.size(); ++i)
    data[i] = static_cast<uint8_t>(i * 7 + i / 251 + static_cast<size_t>(tag * 31 + from * 5 + to * 3));
  return data;
}

TEST(SharedTransport, EverythingArrivesWhereItIsWanted) {
  const int64_t sizes[] = {4001, 65536, 5003, 700001, 262144, 8192, 262143, 4096};
  for (const int ranks : {2, 3, 8}) {
    Node node(ranks);
    const auto work = [&](int rank) {
      SharedTransport t = node.join(rank);
      struct Open {
        Transport::Request request;
        std::vector<uint8_t> data, expected;
      };
      std::vector<Open> open;
      for (int operation = 0; operation < 8; ++operation)
        for (const int stream : {kSums, kPieces, kSingle})
          for (int other = 0; other < ranks; ++other) {
            if (other == rank) continue;
            const int64_t bytes = sizes[(operation + stream) % 8];
            const int number = tag(operation, stream);
            open.push_back({0, content(rank, other, number, bytes), {}});
            open.back().request = t.send(other, number, open.back().data.data(), bytes);
            // Receives are posted in another order than sends: the last operation first.
            const int mirrored = tag(7 - operation, stream);
            const int64_t incoming = sizes[(7 - operation + stream) % 8];
            open.push_back({0, std::vector<uint8_t>(static_cast<size_t>(incoming)),
                            content(other, rank, mirrored, incoming)});
            open.back().request = t.recv(other, mirrored, open.back().data.data(), incoming);
          }
      while (!open.empty()) {
        std::erase_if(open, [&](Open& o) {
          if (!t.done(o.request)) return false;
          if (!o.expected.empty()) {
            EXPECT_EQ(o.data, o.expected) << "rank " << rank;
          }
          return true;
        });
        std::this_thread::yield();
      }
    };
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; ++r) threads.emplace_back(work, r);
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(node.elsewhere, std::vector<int>(static_cast<size_t>(ranks), 0));
  }
}

TEST(SharedTransport, AMessageWaitsForThoseBeforeItInItsStreamOnly) {
  Node node(2);
  SharedTransport a = node.join(0), b = node.join(1);
  const std::vector<uint8_t> first = content(0, 1, tag(0, kPieces), 5000),
                             second = content(0, 1, tag(1, kPieces), 5000);
  std::vector<uint8_t> x(5000), y(5000);
  EXPECT_TRUE(a.done(a.send(1, tag(0, kPieces), first.data(), 5000)));  // both fit into the ring
  EXPECT_TRUE(a.done(a.send(1, tag(1, kPieces), second.data(), 5000)));
  EXPECT_TRUE(a.done(a.send(1, tag(1, kSums), first.data(), 5000)));
  const Transport::Request later = b.recv(0, tag(1, kPieces), y.data(), 5000);
  EXPECT_FALSE(b.done(later));
  EXPECT_TRUE(b.done(b.recv(0, tag(1, kSums), x.data(), 5000)));
  EXPECT_EQ(x, first);
  x.assign(5000, 0);
  EXPECT_TRUE(b.done(b.recv(0, tag(0, kPieces), x.data(), 5000)));
  EXPECT_TRUE(b.done(later));
  EXPECT_EQ(x, first);
  EXPECT_EQ(y, second);
}

TEST(SharedTransport, ASenderContinuesWhenTheRingHasSpace) {
  Node node(2);
  SharedTransport a = node.join(0), b = node.join(1);
  const std::vector<uint8_t> large = content(0, 1, tag(0, kPieces), int64_t{3} << 20);
  std::vector<uint8_t> x(large.size());
  const Transport::Request sent =
      a.send(1, tag(0, kPieces), large.data(), static_cast<int64_t>(large.size()));
  EXPECT_FALSE(a.done(sent));
  const Transport::Request come = b.recv(0, tag(0, kPieces), x.data(), static_cast<int64_t>(x.size()));
  bool gone = false;
  for (int looks = 0; !b.done(come); ++looks) {
    ASSERT_LT(looks, 1000);
    gone = gone || a.done(sent);
  }
  EXPECT_TRUE(gone);
  EXPECT_EQ(x, large);
}

TEST(SharedTransport, ShortOnesAndThoseToOtherNodesGoAnotherWay) {
  Node node(3);
  SharedTransport a = node.join(0, 2);
  std::vector<uint8_t> x(10000);
  EXPECT_FALSE(a.done(a.send(1, tag(0, kPieces), x.data(), SharedTransport::kShort)));
  EXPECT_FALSE(a.done(a.send(2, tag(0, kPieces), x.data(), 10000)));
  EXPECT_FALSE(a.done(a.recv(2, tag(0, kPieces), x.data(), 10000)));
  EXPECT_EQ(node.elsewhere[0], 3);
}

}  // namespace ingot::shared_transport_ranks_test
