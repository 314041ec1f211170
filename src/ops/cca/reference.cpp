// cca in plain loops; see cca.h for the formulas. Angles by the standard library, in double.
#include "ops/reference.h"

#include <cmath>

#include "ops/cca/cca.h"
#include "ops/sequence/documents.h"
#include "ops/sequence/rotary_reference.h"
#include "ops/sequence/sequence_store.h"

namespace ingot {
namespace {

using namespace cca_input;
using namespace reference;

size_t at(int64_t i) {
  return static_cast<size_t>(i);
}

/// The call in doubles.
struct Problem {
  explicit Problem(const OpCall& call)
      : a(call.attr<CcaAttr>()),
        K(a.head_width),
        channels((a.heads + a.kv_heads) * K),
        width(channels + a.kv_heads * K),
        late_v(a.delayed_channels()),
        x(load(call.in[kQkv])),
        positions(load_ints(call.in[kPositions])),
        taps(load(call.in[kDepthwise])),
        b0(load(call.in[kDepthwiseBias])),
        grouped(load(call.in[kGrouped])),
        b1(load(call.in[kGroupedBias])),
        tau(load(call.in[kTemperature])) {}

  const CcaAttr& a;
  int64_t K, channels, width, late_v;
  Array x;
  std::vector<int32_t> positions;
  Array taps, b0, grouped, b1, tau;

  int64_t queries_per_group() const { return a.heads / a.kv_heads; }
  /// Weight of the grouped convolution: tap 0 is the older one.
  size_t weight(int64_t n, int64_t out, int64_t tap, int64_t in) const {
    return at(((n * K + out) * 2 + tap) * K + in);
  }
};

/// What one span computes on the way; rows with index t + 2 (z) and t + 1 (the others), so that t may be -2
/// or -1.
struct Span {
  Span(const Problem& p, const SequenceSpan& span) : p_(p), rows(span.rows) {
    z.resize(at((rows + 2) * p.channels));
    delayed.resize(at((rows + 1) * p.late_v));
    if (span.past > 0) load_state(span);
    for (int64_t t = 0; t < rows; ++t) {
      const double* row = p.x.data() + (span.row_begin + t) * p.width;
      for (int64_t i = 0; i < p.channels; ++i) z[z_at(t, i)] = row[i];
      for (int64_t i = 0; i < p.late_v; ++i)
        delayed[at((t + 1) * p.late_v + i)] = row[p.width - p.late_v + i];
    }
    u.resize(at((rows + 1) * p.channels));
    for (int64_t t = -1; t < rows; ++t)
      for (int64_t i = 0; i < p.channels; ++i)
        u[u_at(t, i)] =
            p.taps[at(2 * i)] * z[z_at(t - 1, i)] + p.taps[at(2 * i + 1)] * z[z_at(t, i)] + p.b0[at(i)];
    convolve();
  }

  void load_state(const SequenceSpan& span) {
    const SequenceLayout& layout = span.state->layout();
    for (const int64_t t : {int64_t{-2}, int64_t{-1}}) {
      const void* data = span.state->conv_row(p_.a.layer, span.past + t);
      const Array row = load(Tensor(const_cast<void*>(data), {p_.channels + p_.late_v}, layout.conv_dtype()));
      for (int64_t i = 0; i < p_.channels; ++i) z[z_at(t, i)] = row[at(i)];
      for (int64_t i = 0; i < p_.late_v; ++i) delayed[at(i)] = row[at(p_.channels + i)];
    }
  }

  /// pre = c + mean skip: the heads before their norm.
  void convolve() {
    pre.resize(at((rows + 1) * p_.channels));
    const int64_t K = p_.K, ratio = p_.queries_per_group();
    for (int64_t t = 0; t < rows; ++t)
      for (int64_t n = 0; n < p_.a.heads + p_.a.kv_heads; ++n)
        for (int64_t o = 0; o < K; ++o) {
          double c = 0;
          for (int64_t i = 0; i < K; ++i)
            c += p_.grouped[p_.weight(n, o, 0, i)] * u[u_at(t - 1, n * K + i)] +
                 p_.grouped[p_.weight(n, o, 1, i)] * u[u_at(t, n * K + i)];
          double q = 0, k = 0;
          if (n < p_.a.heads) {
            q = z[z_at(t, n * K + o)];
            k = z[z_at(t, (p_.a.heads + n / ratio) * K + o)];
          } else {
            const int64_t j = n - p_.a.heads;
            for (int64_t h = j * ratio; h < (j + 1) * ratio; ++h)
              q += z[z_at(t, h * K + o)] / static_cast<double>(ratio);
            k = z[z_at(t, n * K + o)];
          }
          pre[u_at(t, n * K + o)] = c + p_.b1[at(n * K + o)] + (q + k) / 2;
        }
  }

  double norm(int64_t t, int64_t n) const {
    double square = kCcaNormEps;
    for (int64_t i = 0; i < p_.K; ++i) square += pre[u_at(t, n * p_.K + i)] * pre[u_at(t, n * p_.K + i)];
    return std::sqrt(square);
  }

  size_t z_at(int64_t t, int64_t i) const { return at((t + 2) * p_.channels + i); }
  size_t u_at(int64_t t, int64_t i) const { return at((t + 1) * p_.channels + i); }

  const Problem& p_;
  int64_t rows;
  Array z, delayed, u, pre;
};

void forward(const OpCall& call) {
  const Problem p(call);
  check_positions(p.positions.data(), call.in[kQkv].dim(0));
  Array y(p.x), inverse_norms;
  const ReferenceRotation rotate(p.a.rotary);
  const double root = std::sqrt(static_cast<double>(p.K));
  const CallSpans of_call(call, p.a.rows, kDocuments);
  for (const SequenceSpan& span : of_call.spans()) {
    const Span s(p, span);
    if (span.state != nullptr)
      span.state->append_conv(p.a.layer, span.past,
                              call.in[kQkv].slice(span.row_begin, span.row_begin + span.rows));
    for (int64_t t = 0; t < span.rows; ++t) {
      double* row = y.data() + (span.row_begin + t) * p.width;
      for (int64_t n = 0; n < p.a.heads + p.a.kv_heads; ++n) {
        inverse_norms.push_back(1 / s.norm(t, n));
        const double scale = root / s.norm(t, n) * (n < p.a.heads ? 1 : p.tau[at(n - p.a.heads)]);
        for (int64_t i = 0; i < p.K; ++i) row[n * p.K + i] = s.pre[s.u_at(t, n * p.K + i)] * scale;
        rotate(p.positions[at(span.row_begin + t)], row + n * p.K, 1);
      }
      for (int64_t i = 0; i < p.late_v; ++i) row[p.width - p.late_v + i] = s.delayed[at(t * p.late_v + i)];
    }
  }
  store(call.out[0], y);
  store(call.out[1], inverse_norms);
}

/// Gradients of one call in doubles.
struct Gradients {
  explicit Gradients(const Problem& p)
      : x(p.x.size()),
        taps(p.taps.size()),
        b0(p.b0.size()),
        grouped(p.grouped.size()),
        b1(p.b1.size()),
        tau(p.tau.size()) {}
  Array x, taps, b0, grouped, b1, tau;
};

/// d_pre from the output's cotangent g (rows of one span, already rotated back), and the gradient of tau.
Array norm_backward(const Problem& p, const Span& s, const double* g, Gradients& d) {
  Array d_pre(s.pre.size());
  const ReferenceRotation rotate(p.a.rotary);
  const double root = std::sqrt(static_cast<double>(p.K));
  for (int64_t t = 0; t < s.rows; ++t)
    for (int64_t n = 0; n < p.a.heads + p.a.kv_heads; ++n) {
      const double norm = s.norm(t, n), tau = n < p.a.heads ? 1 : p.tau[at(n - p.a.heads)];
      const double* grad = g + t * p.width + n * p.K;
      double dot = 0;
      for (int64_t i = 0; i < p.K; ++i) dot += grad[i] * s.pre[s.u_at(t, n * p.K + i)] / norm;
      if (n >= p.a.heads) d.tau[at(n - p.a.heads)] += root * dot;
      for (int64_t i = 0; i < p.K; ++i)
        d_pre[s.u_at(t, n * p.K + i)] =
            tau * root / norm * (grad[i] - s.pre[s.u_at(t, n * p.K + i)] / norm * dot);
    }
  return d_pre;
}

void mean_backward(const Problem& p, const Span& s, const Array& d_pre, double* d_x) {
  const int64_t K = p.K, ratio = p.queries_per_group();
  for (int64_t t = 0; t < s.rows; ++t)
    for (int64_t h = 0; h < p.a.heads; ++h)
      for (int64_t i = 0; i < K; ++i) {
        const int64_t q = h * K + i, k = (p.a.heads + h / ratio) * K + i;
        const double share = 1 / static_cast<double>(ratio);
        d_x[t * p.width + q] += (d_pre[s.u_at(t, q)] + share * d_pre[s.u_at(t, k)]) / 2;
        d_x[t * p.width + k] += (d_pre[s.u_at(t, q)] + share * d_pre[s.u_at(t, k)]) / 2;
      }
}

void convolution_backward(const Problem& p, const Span& s, const Array& d_pre, double* d_x, Gradients& d) {
  const int64_t K = p.K;
  Array d_u(s.u.size());
  for (int64_t t = 0; t < s.rows; ++t)
    for (int64_t n = 0; n < p.a.heads + p.a.kv_heads; ++n)
      for (int64_t o = 0; o < K; ++o) {
        const double g = d_pre[s.u_at(t, n * K + o)];
        d.b1[at(n * K + o)] += g;
        for (int64_t tap = 0; tap < 2; ++tap)
          for (int64_t i = 0; i < K; ++i) {
            const size_t w = p.weight(n, o, tap, i), source = s.u_at(t - 1 + tap, n * K + i);
            d.grouped[w] += g * s.u[source];
            d_u[source] += g * p.grouped[w];
          }
      }
  for (int64_t t = -1; t < s.rows; ++t)
    for (int64_t i = 0; i < p.channels; ++i) {
      const double g = d_u[s.u_at(t, i)];
      d.b0[at(i)] += g;
      d.taps[at(2 * i)] += g * s.z[s.z_at(t - 1, i)];
      d.taps[at(2 * i + 1)] += g * s.z[s.z_at(t, i)];
      if (t >= 1) d_x[(t - 1) * p.width + i] += g * p.taps[at(2 * i)];
      if (t >= 0) d_x[t * p.width + i] += g * p.taps[at(2 * i + 1)];
    }
}

void backward(const OpCall& call) {
  const Problem p(call);
  Array g = load(call.d_out[0]);
  g.resize(p.x.size());
  Gradients d(p);
  const ReferenceRotation rotate(p.a.rotary);
  const CallSpans of_call(call, p.a.rows, kDocuments);
  for (const SequenceSpan& span : of_call.spans()) {
    INGOT_CHECK(span.state == nullptr, "cca has no backward through a cached sequence");
    const Span s(p, span);
    double *grad = g.data() + span.row_begin * p.width, *d_x = d.x.data() + span.row_begin * p.width;
    for (int64_t t = 0; t < span.rows; ++t) {
      for (int64_t n = 0; n < p.a.heads + p.a.kv_heads; ++n)
        rotate(p.positions[at(span.row_begin + t)], grad + t * p.width + n * p.K, -1);
      for (int64_t i = p.channels; i < p.width - p.late_v; ++i) d_x[t * p.width + i] = grad[t * p.width + i];
      for (int64_t i = p.width - p.late_v; i < p.width && t > 0; ++i)
        d_x[(t - 1) * p.width + i] = grad[t * p.width + i];
    }
    const Array d_pre = norm_backward(p, s, grad, d);
    mean_backward(p, s, d_pre, d_x);
    convolution_backward(p, s, d_pre, d_x, d);
  }
  store(call.d_in[kQkv], d.x);
  store(call.d_in[kDepthwise], d.taps);
  store(call.d_in[kDepthwiseBias], d.b0);
  store(call.d_in[kGrouped], d.grouped);
  store(call.d_in[kGroupedBias], d.b1);
  store(call.d_in[kTemperature], d.tau);
}

}  // namespace

Kernel cca_reference() {
  return {"reference", accept, forward, backward, nullptr};
}

}  // namespace ingot
