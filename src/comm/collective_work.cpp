// run_collective(): checks that the ranks' requests fit together, then moves and adds. Sums go block by block through a
// small buffer, so a result may lie where its operand lies.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <type_traits>

#include "comm/communicator.h"

namespace ingot {
namespace {

using Requests = std::span<const CommRequest>;
constexpr int64_t kBlock = 2048;  // elements

[[noreturn]] void mismatch(Requests rs, size_t other) {
  throw Error(fmt::format("the ranks do not do the same: rank 0 does {}, rank {} does {}", rs[0].str(), other,
                          rs[other].str()),
              "every rank of a group must start the same operations in the same order");
}

int64_t row_bytes(const Tensor& t) {
  int64_t n = size_of(t.dtype());
  for (int d = 1; d < t.shape().rank(); ++d) n *= t.dim(d);
  return n;
}

int64_t row_count(const Tensor& t) { return t.shape().rank() == 0 ? 1 : t.dim(0); }

std::byte* bytes_at(const Tensor& t, int64_t offset) { return static_cast<std::byte*>(t.data) + offset; }

void copy_bytes(std::byte* to, const std::byte* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, static_cast<size_t>(bytes));
}

/// Adds elements [begin, begin + n) of every rank's operand; calls write(block) with the rounded sums.
template <class T, class Write>
void sum_range(Requests rs, int64_t begin, int64_t n, const Write& write) {
  using Sum = std::conditional_t<std::is_same_v<T, bf16>, float, T>;
  Sum sum[kBlock];
  T rounded[kBlock];
  for (int64_t at = begin; at < begin + n; at += kBlock) {
    const int64_t count = std::min(kBlock, begin + n - at);
    for (size_t r = 0; r < rs.size(); ++r) {
      const T* x = rs[r].in.as<T>() + at;
      for (int64_t i = 0; i < count; ++i) {
        Sum v;
        if constexpr (std::is_same_v<T, bf16>) v = to_float(x[i]);
        else v = x[i];
        sum[i] = r == 0 ? v : sum[i] + v;
      }
    }
    for (int64_t i = 0; i < count; ++i) {
      if constexpr (std::is_same_v<T, bf16>) rounded[i] = to_bf16(sum[i]);
      else rounded[i] = sum[i];
    }
    write(at - begin, rounded, count);
  }
}

template <class T>
void all_reduce(Requests rs) {
  sum_range<T>(rs, 0, rs[0].in.numel(), [&](int64_t at, const T* values, int64_t count) {
    for (const CommRequest& r : rs) std::copy(values, values + count, r.out.as<T>() + at);
  });
}

template <class T>
void reduce_scatter(Requests rs) {
  int64_t begin = 0;
  for (const CommRequest& r : rs) {
    sum_range<T>(rs, begin, r.out.numel(), [&](int64_t at, const T* values, int64_t count) {
      std::copy(values, values + count, r.out.as<T>() + at);
    });
    begin += r.out.numel();
  }
}

template <class T>
void reduce(Requests rs) {
  rs[0].kind == CommKind::all_reduce ? all_reduce<T>(rs) : reduce_scatter<T>(rs);
}

void reduce_any(Requests rs) {
  switch (rs[0].in.dtype()) {
    case DType::f32: return reduce<float>(rs);
    case DType::f64: return reduce<double>(rs);
    case DType::bf16: return reduce<bf16>(rs);
    case DType::i32: return reduce<int32_t>(rs);
    default: fail("{} of {}: sums exist for f32, f64, bf16 and i32", name_of(rs[0].kind), name_of(rs[0].in.dtype()));
  }
}

void all_gather(Requests rs) {
  for (const CommRequest& to : rs) {
    int64_t at = 0;
    for (const CommRequest& from : rs) {
      copy_bytes(bytes_at(to.out, at), bytes_at(from.in, 0), from.in.bytes());
      at += from.in.bytes();
    }
  }
}

void all_to_all(Requests rs) {
  const int64_t width = row_bytes(rs[0].in);
  for (size_t to = 0; to < rs.size(); ++to) {
    int64_t at = 0;
    for (const CommRequest& from : rs) {
      const int64_t first = std::accumulate(from.in_rows.begin(), from.in_rows.begin() + static_cast<int64_t>(to), int64_t{0});
      copy_bytes(bytes_at(rs[to].out, at * width), bytes_at(from.in, first * width), from.in_rows[to] * width);
      at += from.in_rows[to];
    }
    const int64_t padding = (row_count(rs[to].out) - at) * width;
    if (padding > 0) std::memset(bytes_at(rs[to].out, at * width), 0, static_cast<size_t>(padding));
  }
}

void check_shapes(Requests rs) {
  const auto n = static_cast<int64_t>(rs.size());
  for (size_t i = 0; i < rs.size(); ++i) {
    const CommRequest& r = rs[i];
    if (r.kind != rs[0].kind || r.root != rs[0].root) mismatch(rs, i);
    if (r.kind == CommKind::barrier) continue;
    if (r.in.dtype() != rs[0].in.dtype() || r.out.dtype() != r.in.dtype() || row_bytes(r.in) != row_bytes(rs[0].in) ||
        row_bytes(r.out) != row_bytes(r.in))
      mismatch(rs, i);
    if (r.kind != CommKind::all_to_all && !(r.in.shape() == rs[0].in.shape() && r.out.shape() == rs[0].out.shape()))
      mismatch(rs, i);
    const int64_t in = row_count(r.in), out = row_count(r.out);
    const bool fits = r.kind == CommKind::reduce_scatter ? in == n * out
                      : r.kind == CommKind::all_gather   ? out == n * in
                                                         : r.kind == CommKind::all_to_all || in == out;
    if (!fits) fail("rank {} of {}: {} does not fit a group of {}", i, n, r.str(), n);
  }
}

void check_rows(Requests rs) {
  for (size_t a = 0; a < rs.size(); ++a) {
    const auto total = [](const std::vector<int64_t>& v) { return std::accumulate(v.begin(), v.end(), int64_t{0}); };
    if (rs[a].in_rows.size() != rs.size() || rs[a].out_rows.size() != rs.size() ||
        total(rs[a].in_rows) > row_count(rs[a].in) || total(rs[a].out_rows) > row_count(rs[a].out))
      fail("rank {}: {} with row counts that do not fit its tensors", a, rs[a].str());
    for (size_t b = 0; b < rs.size(); ++b)
      if (rs[a].in_rows[b] != rs[b].out_rows[a])
        fail("all_to_all: rank {} sends {} rows to rank {}, which expects {}", a, rs[a].in_rows[b], b, rs[b].out_rows[a]);
  }
}

}  // namespace

void run_collective(Requests rs) {
  check_shapes(rs);
  switch (rs[0].kind) {
    case CommKind::all_reduce:
    case CommKind::reduce_scatter: return reduce_any(rs);
    case CommKind::all_gather: return all_gather(rs);
    case CommKind::broadcast: {
      const Tensor& from = rs[static_cast<size_t>(rs[0].root)].in;
      for (const CommRequest& r : rs) copy_bytes(bytes_at(r.out, 0), bytes_at(from, 0), from.bytes());
      return;
    }
    case CommKind::all_to_all: check_rows(rs); return all_to_all(rs);
    case CommKind::barrier:
    case CommKind::send_recv: return;
  }
}

}  // namespace ingot
