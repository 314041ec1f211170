// See agree.h.
#include "comm/agree.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/clock.h"

namespace ingot {
namespace {

/// Texts are sent as 32-bit words.
std::vector<int32_t> words_of(const std::string& text, int64_t words) {
  std::vector<int32_t> packed(static_cast<size_t>(words));
  if (!text.empty()) std::memcpy(packed.data(), text.data(), text.size());
  return packed;
}

int64_t word_count(int64_t bytes) {
  return (bytes + 3) / 4;
}

Tensor view(std::vector<int32_t>& words) {
  return Tensor::of(words.data(), {static_cast<int64_t>(words.size())});
}

/// The text of a rank, or its error with a hint.
struct Contribution {
  std::string text, hint;
  bool failed = false;
};

std::string pack(const Contribution& s) {
  return fmt::format("{}{:016x}{}{}", s.failed ? 'E' : 'T', s.text.size(), s.text, s.hint);
}

Contribution unpack(const std::string& packed) {
  const size_t size = std::stoull(packed.substr(1, 16), nullptr, 16);
  return {packed.substr(17, size), packed.substr(17 + size), packed[0] == 'E'};
}

Contribution contribution_of(const std::function<std::string()>& contribute) {
  try {
    return {contribute(), "", false};
  } catch (const Error& e) {
    return {e.what(), e.hint(), true};
  } catch (const std::exception& e) {
    return {e.what(), "", true};
  }
}

}  // namespace

std::vector<std::string> all_gather_text(Communicator& group, const std::string& text) {
  const auto ranks = static_cast<size_t>(group.size());
  std::vector<int32_t> mine{static_cast<int32_t>(text.size())}, sizes(ranks);
  INGOT_CHECK(text.size() < size_t{1} << 31, "a text of {} bytes", text.size());
  group.all_gather(view(mine), view(sizes)).wait();
  const int64_t words = word_count(*std::max_element(sizes.begin(), sizes.end()));
  std::vector<int32_t> in = words_of(text, words), out(ranks * static_cast<size_t>(words));
  group.all_gather(view(in), view(out)).wait();
  std::vector<std::string> texts;
  for (size_t r = 0; r < ranks; ++r)
    texts.emplace_back(reinterpret_cast<const char*>(out.data() + r * static_cast<size_t>(words)),
                       static_cast<size_t>(sizes[r]));
  return texts;
}

std::string broadcast_text(Communicator& group, const std::string& text, int root) {
  std::vector<int32_t> size{static_cast<int32_t>(text.size())};
  group.broadcast(view(size), root).wait();
  std::vector<int32_t> words = words_of(group.rank() == root ? text : "", word_count(size[0]));
  group.broadcast(view(words), root).wait();
  return {reinterpret_cast<const char*>(words.data()), static_cast<size_t>(size[0])};
}

double agree_on_begin(Communicator& group) {
  constexpr double kSoon = 0.03;
  double begin = monotonic_seconds() + kSoon;
  group.broadcast(Tensor::of(&begin, Shape{}), 0).wait();
  return begin;
}

std::string agree(Communicator* group, const std::function<std::string()>& contribute,
                  const std::function<std::string(const std::vector<std::string>&)>& decide) {
  if (group == nullptr || group->size() == 1) return decide({contribute()});
  const std::vector<std::string> packed = all_gather_text(*group, pack(contribution_of(contribute)));
  std::vector<std::string> texts;
  for (size_t r = 0; r < packed.size(); ++r) {
    Contribution s = unpack(packed[r]);
    if (s.failed) throw Error(fmt::format("rank {}: {}", r, s.text), s.hint);
    texts.push_back(std::move(s.text));
  }
  Contribution answer;
  if (group->rank() == 0) answer = contribution_of([&] { return decide(texts); });
  answer = unpack(broadcast_text(*group, group->rank() == 0 ? pack(answer) : ""));
  if (answer.failed) throw Error(answer.text, answer.hint);
  return answer.text;
}

}  // namespace ingot
