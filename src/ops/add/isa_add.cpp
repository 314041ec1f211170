// add's inner loops, compiled once per instruction set.
#include "ops/add/isa_add.h"

#include "ops/add/rows.h"

namespace ingot::INGOT_ISA {
namespace {

constexpr int64_t kColumns = 128;  // whose sums are kept on the stack at a time

template <class B, class Y>
void sum_products(float* to, const B* b, const Y* d_y, const AddRows& p, int64_t chunk, int64_t n) {
  float total[kColumns] = {}, part[kColumns];
  for (int64_t first = 0; first < p.rows; first += chunk) {
    const int64_t last = first + chunk < p.rows ? first + chunk : p.rows;
    for (int64_t j = 0; j < n; ++j) part[j] = 0.0f;
    for (int64_t t = first; t < last; ++t)
      each_vector(n, [&](int64_t j, int count) {
        store_n(part + j, plus_products(b, d_y, t * p.width, j, count, load_n(part + j, count)), count);
      });
    copy_n(total, part, n, true);
  }
  copy_n(to, total, n, p.accumulate);
}

}  // namespace

void add_forward(const AddRows& p, int64_t begin, int64_t end) {
  typed(p.a, p.a_type, [&](auto* a) {
    typed(p.b, p.b_type, [&](auto* b) {
      typed(p.y, p.y_type, [&](auto* y) {
        for (int64_t t = begin * p.width; t < end * p.width; t += p.width)
          each_vector(p.width, [&](int64_t i, int n) { sum_n(p, a, b, y, t, i, n); });
      });
    });
  });
}

void add_gated_gradient(const AddRows& p, int64_t begin, int64_t end) {
  typed(p.d_b, p.b_type, [&](auto* d_b) {
    typed(p.d_y, p.y_type, [&](auto* d_y) {
      for (int64_t t = begin * p.width; t < end * p.width; t += p.width)
        each_vector(p.width, [&](int64_t i, int n) { gated_gradient_n(p, d_b, d_y, t, i, n); });
    });
  });
}

void add_gate_gradient(const AddRows& p, int64_t chunk, int64_t begin, int64_t end) {
  typed(p.b, p.b_type, [&](auto* b) {
    typed(p.d_y, p.y_type, [&](auto* d_y) {
      for (int64_t j = begin; j < end; j += kColumns)
        sum_products(p.d_gate + j, b + j, d_y + j, p, chunk, end - j < kColumns ? end - j : kColumns);
    });
  });
}

}  // namespace ingot::INGOT_ISA
