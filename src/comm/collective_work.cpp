// See collective_work.h; and run_collective(): the collective of ranks that share an address space.
#include "comm/collective_work.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <type_traits>

namespace ingot {
namespace {

using Requests = std::span<const CommRequest>;
constexpr int64_t kBlock = 2048;  // elements

std::byte* bytes_at(const Tensor& t, int64_t offset) {
  return static_cast<std::byte*>(t.data) + offset;
}

void copy_bytes(std::byte* to, const std::byte* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, static_cast<size_t>(bytes));
}

int64_t total(const std::vector<int64_t>& rows) {
  return std::accumulate(rows.begin(), rows.end(), int64_t{0});
}

/// Whether `rows` says what `in` and `out` rows are divided into.
bool has_rows(const std::vector<int64_t>& rows, int size, int rank, int64_t in, int64_t out) {
  return static_cast<int>(rows.size()) == size && total(rows) == in && rows[static_cast<size_t>(rank)] == out;
}

/// Block by block through a small buffer, so that the result may lie where an operand lies.
template <class T>
void sum(T* out, std::span<const void* const> in, int64_t n) {
  using Sum = std::conditional_t<std::is_same_v<T, bf16>, float, T>;
  Sum sums[kBlock];
  for (int64_t at = 0; at < n; at += kBlock) {
    const int64_t count = std::min(kBlock, n - at);
    for (size_t r = 0; r < in.size(); ++r) {
      const T* x = static_cast<const T*>(in[r]) + at;
      for (int64_t i = 0; i < count; ++i) {
        Sum v;
        if constexpr (std::is_same_v<T, bf16>)
          v = to_float(x[i]);
        else
          v = x[i];
        sums[i] = r == 0 ? v : sums[i] + v;
      }
    }
    for (int64_t i = 0; i < count; ++i) {
      if constexpr (std::is_same_v<T, bf16>)
        out[at + i] = to_bf16(sums[i]);
      else
        out[at + i] = sums[i];
    }
  }
}

/// Sums bytes [begin, begin + bytes) of every rank's operand.
void sum_range(Requests rs, int64_t begin, const Tensor& out, int64_t n) {
  std::vector<const void*> in;
  for (const CommRequest& r : rs) in.push_back(bytes_at(r.in, begin));
  sum_in_rank_order(out.data, in, n, out.dtype());
}

void all_reduce(Requests rs) {
  sum_range(rs, 0, rs[0].out, rs[0].in.numel());
  for (const CommRequest& r : rs.subspan(1))
    copy_bytes(bytes_at(r.out, 0), bytes_at(rs[0].out, 0), r.out.bytes());
}

void reduce_scatter(Requests rs) {
  int64_t begin = 0;
  for (const CommRequest& r : rs) {
    sum_range(rs, begin, r.out, r.out.numel());
    begin += r.out.bytes();
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
      const int64_t first =
          std::accumulate(from.in_rows.begin(), from.in_rows.begin() + static_cast<int64_t>(to), int64_t{0});
      copy_bytes(bytes_at(rs[to].out, at * width), bytes_at(from.in, first * width),
                 from.in_rows[to] * width);
      at += from.in_rows[to];
    }
    const int64_t padding = (row_count(rs[to].out) - at) * width;
    if (padding > 0) std::memset(bytes_at(rs[to].out, at * width), 0, static_cast<size_t>(padding));
  }
}

void check_values(Requests rs) {
  const int n = static_cast<int>(rs.size());
  for (int i = 0; i < n; ++i) {
    check_same(0, rs[0], i, rs[static_cast<size_t>(i)]);
    check_fits(i, n, rs[static_cast<size_t>(i)]);
  }
  if (rs[0].kind == CommKind::reduce_scatter)
    for (const CommRequest& r : rs)
      if (r.in_rows != rs[0].in_rows) fail("reduce_scatter: the ranks divide its rows differently");
  if (rs[0].kind != CommKind::all_to_all) return;
  for (size_t a = 0; a < rs.size(); ++a)
    for (size_t b = 0; b < rs.size(); ++b)
      check_rows(static_cast<int>(a), rs[a].in_rows[b], static_cast<int>(b), rs[b].out_rows[a]);
}

}  // namespace

int64_t row_bytes(const Tensor& t) {
  int64_t n = size_of(t.dtype());
  for (int d = 1; d < t.shape().rank(); ++d) n *= t.dim(d);
  return n;
}

int64_t row_count(const Tensor& t) {
  return t.shape().rank() == 0 ? 1 : t.dim(0);
}

void check_same(int a, const CommRequest& x, int b, const CommRequest& y) {
  const bool same_kind = x.kind == y.kind && x.root == y.root;
  const bool same_type = x.in.dtype() == y.in.dtype() && x.out.dtype() == y.out.dtype() &&
                         row_bytes(x.in) == row_bytes(y.in) && row_bytes(x.out) == row_bytes(y.out);
  const bool uneven = x.kind == CommKind::reduce_scatter && !(x.in_rows.empty() && y.in_rows.empty());
  const bool same_shape = x.kind == CommKind::all_to_all ||
                          (x.in.shape() == y.in.shape() && (uneven || x.out.shape() == y.out.shape()));
  if (same_kind && (x.kind == CommKind::barrier || (same_type && same_shape))) return;
  throw Error(
      fmt::format("the ranks do not do the same: rank {} does {}, rank {} does {}", a, x.str(), b, y.str()),
      "every rank of a group must start the same operations in the same order");
}

void check_fits(int rank, int size, const CommRequest& r) {
  if (r.kind == CommKind::barrier) return;
  const int64_t in = row_count(r.in), out = row_count(r.out);
  const bool uneven = r.kind == CommKind::reduce_scatter && !r.in_rows.empty();
  const bool fits = uneven                               ? has_rows(r.in_rows, size, rank, in, out)
                    : r.kind == CommKind::reduce_scatter ? in == size * out
                    : r.kind == CommKind::all_gather     ? out == size * in
                                                         : r.kind == CommKind::all_to_all || in == out;
  if (!fits || r.in.dtype() != r.out.dtype() || row_bytes(r.in) != row_bytes(r.out))
    fail("rank {} of {}: {} does not fit a group of {}", rank, size, r.str(), size);
  const auto n = static_cast<size_t>(size);
  if (r.kind == CommKind::all_to_all &&
      (r.in_rows.size() != n || r.out_rows.size() != n || total(r.in_rows) > in || total(r.out_rows) > out))
    fail("rank {}: {} with row counts that do not fit its tensors", rank, r.str());
}

void check_rows(int a, int64_t sent, int b, int64_t expected) {
  if (sent != expected)
    fail("all_to_all: rank {} sends {} rows to rank {}, which expects {}", a, sent, b, expected);
}

void sum_in_rank_order(void* out, std::span<const void* const> in, int64_t n, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return sum(static_cast<float*>(out), in, n);
    case DType::f64:
      return sum(static_cast<double*>(out), in, n);
    case DType::bf16:
      return sum(static_cast<bf16*>(out), in, n);
    case DType::i32:
      return sum(static_cast<int32_t*>(out), in, n);
    default:
      fail("a sum of {}: sums exist for f32, f64, bf16 and i32", name_of(dtype));
  }
}

void run_collective(Requests rs) {
  check_values(rs);
  switch (rs[0].kind) {
    case CommKind::all_reduce:
      return all_reduce(rs);
    case CommKind::reduce_scatter:
      return reduce_scatter(rs);
    case CommKind::all_gather:
      return all_gather(rs);
    case CommKind::broadcast: {
      const Tensor& from = rs[static_cast<size_t>(rs[0].root)].in;
      for (const CommRequest& r : rs) copy_bytes(bytes_at(r.out, 0), bytes_at(from, 0), from.bytes());
      return;
    }
    case CommKind::all_to_all:
      return all_to_all(rs);
    case CommKind::barrier:
    case CommKind::send_recv:
      return;
  }
}

}  // namespace ingot
