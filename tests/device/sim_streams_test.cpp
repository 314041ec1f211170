// The streams of device/sim: work runs late and in many orders with the same results, and each mistake in
// waiting is found and named in every order.
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "base/error.h"
#include "device/sim/sim_device.h"
#include "support/sim_orders.h"
#include "support/support.h"
#include "tensor/arena.h"

namespace ingot::test::sim_streams_test {

constexpr int64_t kBytes = 256;

void finish_all() {
  for (const StreamRole stream :
       {StreamRole::compute, StreamRole::copy_in, StreamRole::copy_out, StreamRole::comm})
    sim_device().synchronize(sim_device().record(stream));
}

/// Memory of the device for as long as this lives.
class SimBlock {
 public:
  explicit SimBlock(const char* slot) : data_(sim_device().allocate(kBytes)) {
    sim_device().name_memory(data_, kBytes, "test", slot);
  }
  ~SimBlock() {
    finish_all();
    sim_device().release(data_, kBytes);
  }
  SimBlock(const SimBlock&) = delete;
  SimBlock& operator=(const SimBlock&) = delete;
  void* data() const { return data_; }

 private:
  void* data_;
};

std::vector<char> bytes(char value) {
  return std::vector<char>(kBytes, value);
}
void write(const SimBlock& to, char value, StreamRole stream) {
  sim_device().upload(to.data(), bytes(value).data(), kBytes, stream);
}
/// What `after` does next runs after what `before` was asked for.
void order(StreamRole before, StreamRole after) {
  sim_device().wait(after, sim_device().record(before));
}
/// The message of the InternalError that the function ends with; "" for none.
std::string fault(const std::function<void()>& run) {
  try {
    run();
  } catch (const InternalError& e) {
    return e.what();
  }
  return {};
}

class SimStreamsInOrder : public ::testing::TestWithParam<SimOrder> {
 protected:
  const InSimOrder order_{GetParam()};
  std::vector<char> host_ = bytes(0);  ///< longer than what copies to it
};
INSTANTIATE_TEST_SUITE_P(All, SimStreamsInOrder, ::testing::ValuesIn(kSimOrders), sim_order_name);

TEST_P(SimStreamsInOrder, WaitsOrderStreams) {
  const SimBlock a("a");
  for (char i = 1; i < 20; ++i) {
    write(a, i, StreamRole::compute);
    order(StreamRole::compute, StreamRole::copy_out);
    sim_device().begin_download(host_.data(), a.data(), kBytes, StreamRole::copy_out);
    const DeviceEvent copied = sim_device().record(StreamRole::copy_out);
    order(StreamRole::copy_out, StreamRole::comm);  // two streams on the way
    write(a, 0, StreamRole::comm);
    order(StreamRole::comm, StreamRole::compute);
    sim_device().synchronize(copied);
    EXPECT_EQ(host_, bytes(i));
  }
}

TEST_P(SimStreamsInOrder, WhatTheHostHasWaitedForNeedsNoOtherWait) {
  const SimBlock a("a");
  write(a, 1, StreamRole::copy_in);
  sim_device().synchronize(sim_device().record(StreamRole::copy_in));
  sim_device().download(host_.data(), a.data(), kBytes, StreamRole::comm);
  EXPECT_EQ(host_, bytes(1));
}

TEST_P(SimStreamsInOrder, ReadsRunBesideEachOther) {
  const SimBlock a("a");
  std::vector<char> other = bytes(0);
  write(a, 1, StreamRole::compute);
  for (const StreamRole stream : {StreamRole::copy_out, StreamRole::comm}) order(StreamRole::compute, stream);
  sim_device().begin_download(host_.data(), a.data(), kBytes, StreamRole::copy_out);
  sim_device().begin_download(other.data(), a.data(), kBytes, StreamRole::comm);
  finish_all();
  EXPECT_EQ(host_, bytes(1));
  EXPECT_EQ(other, bytes(1));
}

TEST_P(SimStreamsInOrder, AReadThatDoesNotWaitForTheWriteIsFound) {
  const SimBlock a("a"), b("b");
  write(a, 1, StreamRole::compute);
  order(StreamRole::compute, StreamRole::copy_out);
  write(b, 1, StreamRole::compute);  // later than the event
  const std::string message =
      fault([&] { sim_device().begin_download(host_.data(), b.data(), kBytes, StreamRole::copy_out); });
  EXPECT_NE(
      message.find("stream copy_out would read memory of device 'sim' beside the write that stream compute "
                   "was asked for: byte 0 of 256, 'b' of op 'test'"),
      std::string::npos)
      << message;
  EXPECT_EQ(fault([&] { sim_device().begin_download(host_.data(), a.data(), kBytes, StreamRole::copy_out); }),
            "");
}

TEST_P(SimStreamsInOrder, AWriteThatDoesNotWaitForTheReadIsFound) {
  const SimBlock a("a");
  write(a, 1, StreamRole::copy_out);
  sim_device().begin_download(host_.data(), a.data(), kBytes, StreamRole::copy_out);
  EXPECT_NE(fault([&] { write(a, 2, StreamRole::comm); }).find("stream comm would write"), std::string::npos);
  finish_all();
  EXPECT_EQ(host_, bytes(1));
}

TEST_P(SimStreamsInOrder, ABufferGivenBackTooEarlyIsFound) {
  HeapArena heap(sim_device());
  PlannedArena planned({{kBytes, kBytes}, {0, kBytes}, 2 * kBytes}, sim_device());
  for (Arena* const arena : {static_cast<Arena*>(&heap), static_cast<Arena*>(&planned)}) {
    const Block early = arena->allocate(kBytes, "message"), in_time = arena->allocate(kBytes, "message");
    for (const Block& block : {early, in_time}) {
      order(StreamRole::compute, StreamRole::copy_out);
      sim_device().begin_download(host_.data(), block.data, kBytes, StreamRole::copy_out);
      if (block.data == in_time.data) order(StreamRole::copy_out, StreamRole::compute);
      const std::string message = fault([&] { arena->release(block); });
      if (block.data == early.data)
        EXPECT_NE(
            message.find("memory of device 'sim' was given back before the read that stream copy_out was "
                         "asked for is over: byte 0 of 256 of category 'message'"),
            std::string::npos)
            << message;
      else
        EXPECT_EQ(message, "");
    }
    finish_all();
  }
}

TEST_P(SimStreamsInOrder, UseOfABufferThatWasGivenBackIsFound) {
  HeapArena arena(sim_device());
  const Block block = arena.allocate(kBytes, "message");
  arena.release(block);
  const auto read = [&] { sim_device().download(host_.data(), block.data, kBytes); };
  EXPECT_NE(
      fault(read).find("stream compute would read memory of device 'sim' that was given back: byte 0 of "
                       "256 of category 'message'"),
      std::string::npos)
      << fault(read);
  EXPECT_NE(fault([&] { arena.release(block); }), "");
  const Block again = arena.allocate(kBytes, "message");
  ASSERT_EQ(again.data, block.data);
  EXPECT_EQ(fault(read), "");
  EXPECT_EQ(host_, bytes(-1)) << "nobody wrote it since";
  arena.release(again);
}

TEST_P(SimStreamsInOrder, ReleaseWaitsForComputeAlone) {
  void* const a = sim_device().allocate(kBytes);
  sim_device().upload(a, bytes(1).data(), kBytes, StreamRole::copy_in);
  EXPECT_NE(fault([&] { sim_device().release(a, kBytes); }).find("was given back before"), std::string::npos);
  order(StreamRole::copy_in, StreamRole::compute);
  sim_device().release(a, kBytes);
}

TEST_P(SimStreamsInOrder, ThreadsHaveStreamsOfTheirOwn) {
  const SimBlock a("a");
  const DeviceEvent here = sim_device().record(StreamRole::compute);
  std::string waits, synchronizes;
  std::thread([&] {
    waits = fault([&] { sim_device().wait(StreamRole::compute, here); });
    synchronizes = fault([&] { sim_device().synchronize(here); });
  }).join();
  EXPECT_NE(waits.find("an event of another thread"), std::string::npos) << waits;
  EXPECT_NE(synchronizes.find("an event of another thread"), std::string::npos) << synchronizes;
  EXPECT_NE(fault([] { sim_device().wait(StreamRole::compute, {}); }), "");
}

/// How many of 40 copies to the host, one in each of two streams in turn, are there before anybody waits, as
/// one digit each.
std::string arrived(const SimOrder& sim_order) {
  const InSimOrder in_order(sim_order);
  const SimBlock a("a");
  write(a, 1, StreamRole::compute);
  sim_device().synchronize(sim_device().record(StreamRole::compute));
  std::vector<std::vector<char>> to(40, bytes(0));
  for (size_t i = 0; i < to.size(); ++i)
    sim_device().begin_download(to[i].data(), a.data(), kBytes,
                                i % 2 == 0 ? StreamRole::copy_out : StreamRole::comm);
  std::string there;
  for (const auto& each : to) there += each == bytes(1) ? '1' : '0';
  finish_all();
  for (const auto& each : to) EXPECT_EQ(each, bytes(1));
  return there;
}

TEST(SimStreams, WorkRunsLateInAnOrderThatTheSeedDecides) {
  EXPECT_EQ(arrived({}), std::string(40, '1'));
  const std::string one = arrived({true, 1});
  EXPECT_NE(one.find('0'), std::string::npos);
  EXPECT_EQ(arrived({true, 1}), one);
  EXPECT_NE(arrived({true, 2}), one);
}

TEST(SimStreams, WorkOfAnotherThreadIsNotWaitedFor) {
  const InSimOrder in_order({true, 1});
  const SimBlock a("a");
  std::vector<char> host = bytes(0);
  std::thread([&] {
    for (int i = 0; i < 100; ++i) write(a, 1, StreamRole::compute);  // too many to have all run by chance
  }).join();
  const std::string message = fault([&] { sim_device().download(host.data(), a.data(), kBytes); });
  EXPECT_NE(
      message.find("another thread's work on memory of device 'sim' is not over: byte 0 of 256, 'a' of op "
                   "'test'"),
      std::string::npos)
      << message;
  set_sim_order({});  // runs it
  EXPECT_EQ(fault([&] { sim_device().download(host.data(), a.data(), kBytes); }), "");
}

TEST(SimStreams, TheOrderOfTheEnvironmentIsRead) {
  EXPECT_FALSE(sim_order_of("ordered").late);
  EXPECT_TRUE(sim_order_of("async,17").late);
  EXPECT_EQ(sim_order_of("async,17").seed, 17U);
  for (const char* wrong : {"", "async", "async,", "async,x", "async,1x", "async,-1", "17"})
    EXPECT_THROW(sim_order_of(wrong), Error) << wrong;
}

}  // namespace ingot::test::sim_streams_test
