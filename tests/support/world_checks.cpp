// See support/world_checks.h.
#include "support/world_checks.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <thread>

#include "base/clock.h"
#include "base/philox.h"
#include "comm/agree.h"
#include "comm/self_test.h"

namespace ingot::test::world_checks {
namespace {

template <class T>
T value(double v) {
  if constexpr (std::is_same_v<T, bf16>)
    return to_bf16(static_cast<float>(v));
  else
    return static_cast<T>(v);
}

template <class T>
double number(T v) {
  if constexpr (std::is_same_v<T, bf16>)
    return to_float(v);
  else
    return static_cast<double>(v);
}

/// Elements that differ, without a line for each.
template <class T, class Expected>
int64_t wrong(const std::vector<T>& v, const Expected& expected) {
  int64_t count = 0;
  for (size_t i = 0; i < v.size(); ++i) count += number(v[i]) != expected(static_cast<int64_t>(i));
  return count;
}

template <class T>
void check_type(World& world, int64_t rows) {
  const int n = world.ranks(), me = world.rank();
  const auto c = world.group("all", everyone(n));
  const auto at = [](int rank, int64_t i) { return rank + 1 + static_cast<double>(i % 7); };
  const auto mine = [&](int64_t i) { return at(me, i); };
  const auto sum_of = [&](int64_t i) { return n * (n + 1) / 2.0 + n * static_cast<double>(i % 7); };
  const auto size = static_cast<size_t>(rows);
  std::vector<T> x(size), y(size), wide(size * static_cast<size_t>(n)), part(size);
  for (size_t i = 0; i < size; ++i) x[i] = value<T>(mine(static_cast<int64_t>(i)));
  Pending sum = c->all_reduce(tensor(x), tensor(y));
  Pending gathered = c->all_gather(tensor(x), tensor(wide));
  gathered.wait();  // the order of waits is free
  sum.wait();
  EXPECT_EQ(wrong(y, sum_of), 0) << rows;
  EXPECT_EQ(wrong(wide, [&](int64_t i) { return at(static_cast<int>(i / rows), i % rows); }), 0) << rows;
  c->reduce_scatter(tensor(wide), tensor(part)).wait();
  EXPECT_EQ(wrong(part, [&](int64_t i) { return n * mine(i); }), 0) << rows;
  const auto cut = [&](int64_t p) { return rows * p * p / n; };  // uneven pieces, the first one the smallest
  std::vector<int64_t> pieces;
  for (int p = 0; p < n; ++p) pieces.push_back(cut(p + 1) - cut(p));
  std::vector<T> uneven(static_cast<size_t>(pieces[static_cast<size_t>(me)]));
  c->reduce_scatter(tensor(wide), pieces, tensor(uneven)).wait();
  const auto whole = [&](int64_t i) { return n * at(static_cast<int>(i / rows), i % rows); };
  EXPECT_EQ(wrong(uneven, [&](int64_t i) { return whole(cut(me) + i); }), 0) << rows;
  c->all_reduce(tensor(x), tensor(x)).wait();
  EXPECT_EQ(wrong(x, sum_of), 0) << rows;
  if (me == n - 1)
    for (T& v : y) v = value<T>(9);
  c->broadcast(tensor(y), n - 1).wait();
  EXPECT_EQ(wrong(y, [](int64_t) { return 9; }), 0) << rows;
  c->barrier();
}

template <class T>
void check_order(World& world, int64_t elements) {
  const int n = world.ranks();
  std::vector<std::vector<T>> all(static_cast<size_t>(n));
  for (int r = 0; r < n; ++r) {
    const Random random(3, RandomPurpose::test, static_cast<uint64_t>(r));
    for (int64_t i = 0; i < elements; ++i) {
      const double magnitude = i % 3 == 0 ? 1e6 : 1;
      all[static_cast<size_t>(r)].push_back(value<T>(magnitude * random.normal(static_cast<uint64_t>(i))));
    }
  }
  const auto expected = [&](int64_t i) {
    if constexpr (std::is_same_v<T, double>) {
      double sum = all[0][static_cast<size_t>(i)];
      for (size_t r = 1; r < all.size(); ++r) sum += all[r][static_cast<size_t>(i)];
      return sum;
    } else {
      float sum = to_float(all[0][static_cast<size_t>(i)]);
      for (size_t r = 1; r < all.size(); ++r) sum += to_float(all[r][static_cast<size_t>(i)]);
      return number(value<T>(sum));
    }
  };
  const auto c = world.group("all", everyone(n));
  std::vector<T>& x = all[static_cast<size_t>(world.rank())];
  std::vector<T> y(x.size());
  c->all_reduce(tensor(x), tensor(y)).wait();
  EXPECT_EQ(wrong(y, expected), 0) << elements;
  const int64_t part = elements / n;
  std::vector<T> piece(static_cast<size_t>(part));
  c->reduce_scatter(tensor(x).slice(0, part * n), tensor(piece)).wait();
  EXPECT_EQ(wrong(piece, [&](int64_t i) { return expected(world.rank() * part + i); }), 0) << elements;
}

/// Rank a sends `scale` * ((a + b) % 3) rows to rank b; a row is {a, b, b, ...}.
void check_rows(World& world, int64_t scale, int64_t width) {
  const int n = world.ranks(), me = world.rank();
  const auto c = world.group("all", everyone(n));
  const auto row = [&](std::vector<int32_t>& to, int a, int b) {
    to.push_back(a);
    to.resize(to.size() + static_cast<size_t>(width) - 1, b);
  };
  std::vector<int64_t> rows;
  std::vector<int32_t> in, expected;
  for (int p = 0; p < n; ++p) {
    rows.push_back(scale * ((me + p) % 3));
    for (int64_t i = 0; i < rows.back(); ++i) row(in, me, p), row(expected, p, me);
  }
  const auto used = static_cast<int64_t>(in.size()) / width, capacity = used + 3;
  std::vector<int32_t> out(static_cast<size_t>(capacity * width), 7);
  expected.resize(out.size());
  c->all_to_all(Tensor::of(in.data(), {used, width}), rows, Tensor::of(out.data(), {capacity, width}), rows)
      .wait();
  EXPECT_EQ(wrong(out, [&](int64_t i) { return expected[static_cast<size_t>(i)]; }), 0)
      << scale << " " << width;
}

}  // namespace

void check_collectives(World& world) {
  for (const int64_t rows : {0, 1, 5, 5000, 300000}) {
    check_type<float>(world, rows);
    check_type<double>(world, rows);
    check_type<bf16>(world, rows);
    check_type<int32_t>(world, rows);
  }
}

void check_order_of_sums(World& world) {
  for (const int64_t elements : {7, 900, 400001}) {
    check_order<float>(world, elements);
    check_order<double>(world, elements);
    check_order<bf16>(world, elements);
  }
  // 256 + 1 + 1 is 258 in fp32; rounding in between would lose both ones.
  std::vector<bf16> x{to_bf16(world.rank() == 0 ? 256.0f : 1.0f)};
  if (world.ranks() == 3) {
    world.group("all", everyone(3))->all_reduce(tensor(x), tensor(x)).wait();
    EXPECT_EQ(to_float(x[0]), 258.0f);
  }
}

void check_all_to_all(World& world) {
  check_rows(world, 1, 2);
  check_rows(world, 0, 2);
  check_rows(world, 400, 96);
}

void check_messages(World& world) {
  const auto c = world.group("all", everyone(world.ranks()));
  if (world.rank() > 1) return;
  const bool sends = world.rank() == 0;
  std::vector<std::vector<int32_t>> values;
  std::vector<Pending> open;
  for (int32_t i = 0; i < 20; ++i)
    values.emplace_back(i % 4 == 3 ? 100000 : static_cast<size_t>(i % 2), sends ? i : -1);
  for (auto& v : values) open.push_back(sends ? c->send(tensor(v), 1) : c->recv(tensor(v), 0));
  for (Pending& p : open) p.wait();
  for (int32_t i = 0; i < 20; ++i)
    EXPECT_EQ(wrong(values[static_cast<size_t>(i)], [&](int64_t) { return i; }), 0) << i;
}

void check_progress(World& world) {
  const auto c = world.group("all", everyone(world.ranks()));
  const std::filesystem::path own =
      std::filesystem::temp_directory_path() / fmt::format("ingot-progress-{}", getpid());
  const std::filesystem::path folder = broadcast_text(*c, own.string());
  const auto mark = [&](const char* what) { std::filesystem::create_directories(folder / what); };
  const auto until = [&](const char* what, const std::function<void()>& meanwhile) {
    const double begin = monotonic_seconds();
    while (!std::filesystem::exists(folder / what) && monotonic_seconds() < begin + 30) {
      meanwhile();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return std::filesystem::exists(folder / what);
  };
  std::vector<float> data(size_t{2} << 20, 1);  // more than the transport holds
  if (world.rank() == 0) {
    Pending sent = c->send(tensor(data), 1);
    mark("sent");
    EXPECT_TRUE(until("arrived", [&] { c->progress(); })) << "the receiver waits for a rank that computes";
    sent.wait();
    std::filesystem::remove_all(folder);
  } else if (world.rank() == 1) {
    EXPECT_TRUE(until("sent", [] {}));
    c->recv(tensor(data), 0).wait();
    mark("arrived");
  }
  c->barrier();
}

void check_groups(World& world) {
  const int n = world.ranks(), me = world.rank();
  if (n < 3) return;
  const auto all = world.group("all", everyone(n)), other = world.group("other", everyone(n));
  const Ranks first{0, 1}, last{1, 2};
  const auto low = me <= 1 ? world.group("low", first) : nullptr;
  const auto high = me == 1 || me == 2 ? world.group("high", last) : nullptr;
  std::vector<std::vector<double>> x(4, std::vector<double>(70000, me + 1.0));
  Pending a = all->all_reduce(tensor(x[0]), tensor(x[0]));
  Pending b = low ? low->all_reduce(tensor(x[1]), tensor(x[1])) : Pending();
  Pending c = high ? high->all_reduce(tensor(x[2]), tensor(x[2])) : Pending();
  Pending d = other->all_reduce(tensor(x[3]), tensor(x[3]));
  if (me % 2 == 0) {
    d.wait(), c.wait(), b.wait(), a.wait();
  } else {
    a.wait(), d.wait(), b.wait(), c.wait();
  }
  const double total = n * (n + 1) / 2.0;
  EXPECT_EQ(wrong(x[0], [&](int64_t) { return total; }), 0);
  EXPECT_EQ(wrong(x[3], [&](int64_t) { return total; }), 0);
  EXPECT_EQ(wrong(x[1], [&](int64_t) { return low ? 3.0 : me + 1.0; }), 0);
  EXPECT_EQ(wrong(x[2], [&](int64_t) { return high ? 5.0 : me + 1.0; }), 0);
}

namespace {

/// Each message waits before it leaves.
class SlowCommunicator final : public Communicator {
 public:
  explicit SlowCommunicator(Communicator& inner)
      : Communicator(inner.name(), inner.rank(), inner.size()), inner_(inner) {}

 private:
  Pending start(CommRequest r) override {
    if (r.kind == CommKind::all_gather) return inner_.all_gather(r.in, r.out);
    inner_.barrier();
    return {};
  }
  Pending start_message(const Tensor& t, int peer, bool sends) override {
    if (sends) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return sends ? inner_.send(t, peer) : inner_.recv(t, peer);
  }
  Communicator& inner_;
};

}  // namespace

void check_slow_rank(World& world) {
  const int n = world.ranks(), slow = n - 1;
  if (n < 3) return;
  const auto group = world.group("speeds", everyone(n));
  SlowCommunicator late(*group);
  const auto speeds =
      exchange_speeds(world.rank() == slow ? static_cast<Communicator&>(late) : *group, 100000);
  ASSERT_EQ(speeds.size(), static_cast<size_t>(n));
  EXPECT_EQ(speeds.front().rank, slow);
  EXPECT_LT(speeds.front().bandwidth, 2 * 100000 / 0.3);
  EXPECT_GT(speeds[1].bandwidth, 2 * 100000 / 0.3) << "the partners of a slow rank are not slow";
}

}  // namespace ingot::test::world_checks
