// See burn_in.h.
#include "measure/burn_in.h"

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/clock.h"
#include "base/host_name.h"
#include "base/parallel.h"
#include "base/philox.h"
#include "base/processor_time.h"
#include "base/progress.h"
#include "base/spread.h"
#include "comm/agree.h"
#include "comm/self_test.h"
#include "device/gemm/gemm.h"
#include "measure/doctor_parts.h"
#include "measure/scratch_file.h"

namespace ingot {
namespace {

constexpr int64_t kSide = 768;   ///< of the matrices: a round takes some ten milliseconds a core
constexpr double kWindow = 0.5;  ///< seconds
constexpr uint64_t kWeyl = 0x9E3779B97F4A7C15;

const char* const kRemedy = "leave this machine out, and have it examined";

/// A product of small whole numbers: every sum is exact in fp32, whatever its order, so the right bits follow
/// from arithmetic on integers.
class Products {
 public:
  explicit Products(bool bf16) : bf16_(bf16), c_(kSide * kSide) {
    const Random random(bf16 ? 2 : 1, RandomPurpose::test);
    for (auto* m : {&a_, &b_}) {
      m->resize(kSide * kSide);
      for (size_t i = 0; i < m->size(); ++i)
        (*m)[i] = static_cast<float>(random.below(i + (m == &b_ ? m->size() : 0), 17)) - 8;
    }
    if (!bf16) return;
    for (const auto& [from, to] : {std::pair(&a_, &a16_), std::pair(&b_, &b16_)}) {
      to->resize(from->size());
      for (size_t i = 0; i < from->size(); ++i) (*to)[i] = to_bf16((*from)[i]);
    }
  }
  std::span<float> run() {
    std::fill(c_.begin(), c_.end(), -1.0f);
    GemmArgs g{.m = kSide, .n = kSide, .k = kSide, .lda = kSide, .ldb = kSide, .ldc = kSide};
    g.a = bf16_ ? static_cast<const void*>(a16_.data()) : a_.data();
    g.b = bf16_ ? static_cast<const void*>(b16_.data()) : b_.data();
    g.a_type = g.b_type = bf16_ ? DType::bf16 : DType::f32;
    g.c = c_.data();
    gemm(g);
    return c_;
  }
  /// Elements that are not what integers give.
  int64_t wrong() const {
    std::atomic<int64_t> wrong{0};
    parallel_for(kSide, 8, [&](int64_t begin, int64_t end) {
      std::vector<int32_t> row(kSide);
      for (int64_t i = begin; i < end; ++i) {
        std::fill(row.begin(), row.end(), 0);
        for (int64_t k = 0; k < kSide; ++k) {
          const auto x = static_cast<int32_t>(a_[static_cast<size_t>(i * kSide + k)]);
          for (int64_t j = 0; j < kSide; ++j)
            row[static_cast<size_t>(j)] += x * static_cast<int32_t>(b_[static_cast<size_t>(k * kSide + j)]);
        }
        for (int64_t j = 0; j < kSide; ++j)
          wrong += static_cast<float>(row[static_cast<size_t>(j)]) != c_[static_cast<size_t>(i * kSide + j)];
      }
    });
    return wrong;
  }

 private:
  const bool bf16_;
  std::vector<float> a_, b_, c_;
  std::vector<bf16> a16_, b16_;
};

void try_products(const BurnInOptions& o, bool bf16, std::vector<Finding>& out) {
  const std::string topic = bf16 ? "products in bf16" : "products in fp32";
  Products products(bf16);
  auto round = [&, number = int64_t{0}]() mutable {
    const std::span<float> c = products.run();
    if (o.disturb) o.disturb(c, number);
    ++number;
    return c;
  };
  const std::span<float> begun = round();
  const std::vector<float> first(begun.begin(), begun.end());
  const int64_t wrong = products.wrong();
  std::vector<double> rates;
  int64_t rounds = 0, in_window = 0, different = 0;
  const double begin = monotonic_seconds(), used = processor_seconds();
  double now = begin, window = begin;
  while (now < begin + o.seconds / 2 || rates.empty() || rounds < 3) {
    const std::span<float> c = round();
    different += !std::equal(c.begin(), c.end(), first.begin());
    ++rounds, ++in_window;
    now = monotonic_seconds();
    if (now - window < std::min(kWindow, o.seconds / 8)) continue;
    rates.push_back(2e-9 * static_cast<double>(in_window * kSide * kSide * kSide) / (now - window));
    window = now, in_window = 0;
  }
  if (wrong > 0 || different > 0)
    return out.push_back(
        doctor::problem(topic,
                        fmt::format("{} of {} products differ from the first, which has {} wrong elements",
                                    different, rounds, wrong),
                        kRemedy));
  const Spread rate = spread_of(rates);
  const double share = (processor_seconds() - used) / ((now - begin) * num_threads());
  const std::string text = fmt::format(
      "{} products with equal, right bits; {:.4g} GFLOP/s, {:.4g} in the slowest window, {:.0f} % of {} "
      "threads' time",
      rounds, rate.median, rate.least, 100 * share, num_threads());
  if (share < o.least_share)
    return out.push_back(
        doctor::problem(topic, text, "another program or a limit (a quota of the container) takes the rest"));
  if (rate.least < o.least_window * rate.median)
    return out.push_back(
        doctor::problem(topic, text, "its speed is not steady: look at heat, power limits and neighbours"));
  if (!bf16 && rate.median < o.least_gflops)
    return out.push_back(
        doctor::problem(topic, text, fmt::format("{:.4g} GFLOP/s are expected of it", o.least_gflops)));
  out.push_back(doctor::fact(topic, text));
}

int64_t free_bytes() {
  const std::string kib = doctor::field_of("/", "/proc/meminfo", "MemAvailable");
  return std::strtoll(kib.c_str(), nullptr, 10) * 1024;
}

/// Each word's pattern follows from its place, so that a swapped address is found too; then its complement.
void try_memory(const BurnInOptions& o, std::vector<Finding>& out) {
  const auto wanted = static_cast<int64_t>(o.memory_share * static_cast<double>(free_bytes()));
  const int64_t words = std::max(wanted, int64_t{64} << 20) / 8;
  const std::unique_ptr<uint64_t[]> memory(new uint64_t[static_cast<size_t>(words)]);
  std::atomic<int64_t> wrong{0};
  for (const uint64_t flip : {uint64_t{0}, ~uint64_t{0}}) {
    const auto pattern = [flip](int64_t i) { return (static_cast<uint64_t>(i) * kWeyl) ^ flip; };
    parallel_for(words, 1 << 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) memory[static_cast<size_t>(i)] = pattern(i);
    });
    parallel_for(words, 1 << 16, [&](int64_t begin, int64_t end) {
      int64_t here = 0;
      for (int64_t i = begin; i < end; ++i) here += memory[static_cast<size_t>(i)] != pattern(i);
      wrong += here;
    });
  }
  const std::string size = format_bytes(static_cast<double>(words) * 8);
  if (wrong > 0)
    return out.push_back(doctor::problem(
        "memory", fmt::format("{} of {} words of {} were not kept", wrong.load(), 2 * words, size), kRemedy));
  out.push_back(doctor::fact("memory", fmt::format("two patterns kept over {}", size)));
}

void try_disk(const BurnInOptions& o, std::vector<Finding>& out) {
  if (o.disk_bytes == 0) return;
  const int64_t bytes =
      (o.disk_bytes + ScratchFile::kAlignment - 1) / ScratchFile::kAlignment * ScratchFile::kAlignment;
  try {
    const ScratchFile file(o.folder, true);
    const auto sent = transfer_buffer(bytes), back = transfer_buffer(bytes);
    const double begin = monotonic_seconds();
    file.write(sent.get(), bytes, 0);
    file.sync();
    const double written = monotonic_seconds();
    file.forget(bytes);
    std::fill_n(back.get(), bytes, std::byte{0});
    const double reads = monotonic_seconds();
    file.read(back.get(), bytes, 0);
    const double end = monotonic_seconds();
    const auto rate = [&](double seconds) {
      return format_bytes(static_cast<double>(bytes) / std::max(seconds, 1e-9));
    };
    if (!std::equal(sent.get(), sent.get() + bytes, back.get()))
      return out.push_back(doctor::problem(
          "disk", fmt::format("'{}' gives back other bytes than were written", o.folder), kRemedy));
    out.push_back(doctor::fact("disk", fmt::format("{} written at {}/s and read at {}/s with equal bits",
                                                   format_bytes(static_cast<double>(bytes)),
                                                   rate(written - begin), rate(end - reads))));
  } catch (const Error& e) {
    out.push_back(doctor::problem("disk", e.what(), "give another folder, or --disk 0"));
  }
}

}  // namespace

BurnInOptions burn_in_level(int level) {
  INGOT_CHECK(level >= 1 && level <= 4, "level = {}", level);
  constexpr double kSeconds[] = {4, 120, 1800, 7200}, kShares[] = {0.1, 0.5, 0.8, 0.8};
  const auto i = static_cast<size_t>(level - 1);
  return {.seconds = kSeconds[i], .memory_share = kShares[i], .disk_bytes = int64_t{64} << (20 + 2 * i)};
}

std::vector<Finding> burn_in(const BurnInOptions& o) {
  std::vector<Finding> out;
  try_products(o, false, out);
  try_products(o, true, out);
  try_memory(o, out);
  try_disk(o, out);
  return out;
}

std::vector<Finding> burn_in_ranks(World& world, BurnInOptions options) {
  std::vector<int> everyone(static_cast<size_t>(world.ranks()));
  std::iota(everyone.begin(), everyone.end(), 0);
  const auto group = world.group("burn-in findings", everyone);
  const std::vector<std::string> hosts = all_gather_text(*group, host_name());
  const auto beside = std::count(hosts.begin(), hosts.end(), hosts[static_cast<size_t>(world.rank())]);
  options.memory_share /= static_cast<double>(beside);
  options.disk_bytes /= beside;
  if (beside > 1) options.least_share = options.least_window = options.least_gflops = 0;
  std::vector<Finding> all;
  const std::vector<std::string> texts = all_gather_text(*group, to_json(burn_in(options)));
  for (size_t r = 0; r < texts.size(); ++r) {
    const auto found = nlohmann::json::parse(texts[r]);
    for (const auto& f : found.at("findings"))
      all.push_back({enum_from<Finding::Level>(f.at("level").get<std::string>(), "level"),
                     fmt::format("rank {} on {}: {}", r, hosts[r], f.at("topic").get<std::string>()),
                     f.at("text").get<std::string>(), f.at("remedy").get<std::string>()});
  }
  all.push_back(burn_in_links(world, options));
  return all;
}

Finding burn_in_links(World& world, const BurnInOptions& o) {
  std::vector<int> everyone(static_cast<size_t>(world.ranks()));
  std::iota(everyone.begin(), everyone.end(), 0);
  const auto group = world.group("burn-in", everyone);
  const int n = group->size();
  const auto words_of = [&](int rank) {
    std::vector<uint64_t> words(static_cast<size_t>(o.link_bytes / 8));
    for (size_t i = 0; i < words.size(); ++i) words[i] = (i + static_cast<size_t>(rank) + 1) * kWeyl;
    return words;
  };
  std::vector<uint64_t> out = words_of(group->rank()), in(out.size());
  const auto bytes = static_cast<int64_t>(out.size() * 8);
  const Tensor to = Tensor::of(reinterpret_cast<uint8_t*>(out.data()), {bytes}),
               from = Tensor::of(reinterpret_cast<uint8_t*>(in.data()), {bytes});
  std::string wrong;
  for (int round = 0; round < partner_rounds(n); ++round) {
    const int partner = partner_of(group->rank(), n, round);
    if (partner < 0) continue;
    Pending sent = group->send(to, partner);
    group->recv(from, partner).wait();
    sent.wait();
    if (in != words_of(partner))
      wrong =
          fmt::format("a message from rank {} to rank {} arrived with other bits", partner, group->rank());
  }
  for (const std::string& w : all_gather_text(*group, wrong))
    if (!w.empty()) return doctor::problem("links", w, kRemedy);
  try {
    return doctor::fact("links", self_test(world, o.link_bytes, o.least_link).text);
  } catch (const Error& e) {
    return doctor::problem("links", e.what(), kRemedy);
  }
}

}  // namespace ingot
