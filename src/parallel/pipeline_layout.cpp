// See pipeline_layout.h.
#include "parallel/pipeline_layout.h"

#include "base/error.h"
#include "nn/parameter.h"

namespace ingot {
namespace {

constexpr size_t kMaxLength = 1 << 16;  ///< of the text without repetitions

[[noreturn]] void refuse(std::string_view text, const std::string& what) {
  throw Error(fmt::format("pipeline layout '{}': {}", text, what),
              "E embeds, t is a layer, m predicts ahead, L has the loss, | ends a stage: for example "
              "Et*3|(tt|)*29,m|L");
}

/// Text with repetitions of one kind, read once from left to right.
class Expander {
 public:
  explicit Expander(std::string_view text) : text_(text) {}

  std::string groups() {
    while (at_ < text_.size()) {
      const size_t begin = at_;
      if (text_[at_] == ')') refuse_at(at_, "')' without '('");
      if (text_[at_++] != '(') {
        append(text_.substr(begin, 1), 1);
        continue;
      }
      const size_t end = text_.find_first_of("()", at_);
      if (end == text_.npos) refuse_at(begin, "'(' without ')'");
      if (text_[end] == '(') refuse_at(end, "a group inside a group");
      at_ = end + 1;
      if (at_ == text_.size() || text_[at_] != '*') refuse_at(at_, "a group needs '*' and a number after it");
      append(text_.substr(begin + 1, end - begin - 1), count());
    }
    return std::move(out_);
  }

  std::string characters() {
    while (at_ < text_.size()) {
      const size_t begin = at_++;
      if (text_[begin] == '*') refuse(text_, fmt::format("nothing to repeat at character {}", begin + 1));
      append(text_.substr(begin, 1), at_ < text_.size() && text_[at_] == '*' ? count() : 1);
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse_at(size_t at, const char* what) const {
    refuse(text_, fmt::format("{} at character {}", what, at + 1));
  }

  /// The number after '*'.
  size_t count() {
    const size_t star = at_++;
    size_t n = 0, digits = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9' && n < kMaxLength; ++at_, ++digits)
      n = n * 10 + static_cast<size_t>(text_[at_] - '0');
    if (digits == 0 || n == 0) refuse_at(star, "'*' needs a number from 1 on");
    return n;
  }

  void append(std::string_view what, size_t times) {
    if (out_.size() + what.size() * times > kMaxLength)
      refuse_at(at_ - 1, "more stages and layers than any model has");
    for (size_t i = 0; i < times; ++i) out_ += what;
  }

  std::string_view text_;
  size_t at_ = 0;
  std::string out_;
};

/// Removes commas; refuses characters without a meaning.
std::string without_commas(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (std::string_view("EtmL|(),*0123456789").find(text[i]) == std::string_view::npos)
      refuse(text, fmt::format("'{}' at character {} means nothing", text[i], i + 1));
    if (text[i] != ',') plain += text[i];
  }
  return plain;
}

std::string expand(std::string_view text) {
  const std::string plain = without_commas(text), flat = Expander(plain).groups();
  std::string symbols = Expander(flat).characters();
  for (const char c : symbols)
    if (c >= '0' && c <= '9') refuse(text, fmt::format("the number {} without '*' before it", c));
  return symbols;
}

std::vector<StageParts> read_stages(std::string_view text, const std::string& symbols) {
  std::vector<StageParts> stages(1);
  int64_t layers = 0, modules = 0;
  bool loss = false;
  for (size_t i = 0; i < symbols.size(); ++i) {
    StageParts& s = stages.back();
    if (loss) refuse(text, "L is not the last symbol");
    if (symbols[i] == 'E' && i > 0) refuse(text, "E is not the first symbol, or there are several");
    if (symbols[i] == 't' && modules > 0) refuse(text, "a layer after a module of multi-token prediction");
    switch (symbols[i]) {
      case 'E':
        s.embedding = true;
        break;
      case 't':
        ++s.layers, ++layers;
        break;
      case 'm':
        ++s.modules, ++modules;
        break;
      case 'L':
        loss = s.loss = true;
        break;
      default:
        stages.push_back({.first_layer = layers, .first_module = modules});
    }
  }
  if (!stages.front().embedding) refuse(text, "the first symbol is not E");
  if (!loss) refuse(text, "the last symbol is not L");
  return stages;
}

void check(std::string_view text, const PipelineLayout& p, int64_t layers, int64_t modules) {
  const auto count = static_cast<int>(p.stages.size());
  if (p.ranks < 1 || count % p.ranks != 0)
    refuse(text, fmt::format("{} stages are no multiple of {} pipeline ranks", count, p.ranks));
  for (int r = 0; r < p.ranks; ++r)
    if (p.layer_groups_of(r).empty())
      refuse(text, fmt::format("the stages of pipeline rank {} are empty: it would have nothing to do", r));
  const StageParts& last = p.stages.back();
  if (last.first_layer + last.layers != layers)
    refuse(text, fmt::format("{} layers, the model has {}", last.first_layer + last.layers, layers));
  for (int s = 0; s < count; ++s)
    if (p.stages[static_cast<size_t>(s)].modules > 0 && s / p.ranks != p.chunks() - 1)
      refuse(text, fmt::format("modules of multi-token prediction stand in stage {} of {}, not in the last "
                               "chunk of its rank",
                               s, count));
  if (const int64_t found = last.first_module + last.modules; found != modules)
    refuse(text, fmt::format("{} modules of multi-token prediction, the model has {}", found, modules));
}

}  // namespace

std::vector<int64_t> layer_groups_of(const StageParts& s) {
  std::vector<int64_t> groups;
  if (s.embedding) groups.push_back(kEmbeddingGroup);
  for (int64_t i = 0; i < s.layers; ++i) groups.push_back(s.first_layer + i);
  for (int64_t i = 0; i < s.modules; ++i) groups.push_back(s.first_layer + s.layers + s.first_module + i);
  if (s.loss) groups.push_back(kHeadGroup);
  return groups;
}

int64_t PipelineLayout::layers_of(int rank) const {
  int64_t layers = 0;
  for (int chunk = 0; chunk < chunks(); ++chunk) layers += at(rank, chunk).layers;
  return layers;
}

std::vector<int64_t> PipelineLayout::layer_groups_of(int rank) const {
  std::vector<int64_t> groups;
  for (int chunk = 0; chunk < chunks(); ++chunk)
    for (const int64_t group : ingot::layer_groups_of(at(rank, chunk))) groups.push_back(group);
  return groups;
}

std::string PipelineLayout::str() const {
  std::string text;
  const auto repeat = [&](char c, int64_t n) {
    if (n == 1) text += c;
    if (n > 1) text += fmt::format("{}*{}", c, n);
  };
  for (const StageParts& s : stages) {
    if (&s != &stages.front()) text += '|';
    repeat('E', s.embedding);
    repeat('t', s.layers);
    repeat('m', s.modules);
    repeat('L', s.loss);
  }
  return text;
}

PipelineLayout parse_pipeline_layout(std::string_view text, int ranks, int64_t layers, int64_t modules) {
  PipelineLayout p{ranks, read_stages(text, expand(text))};
  check(text, p, layers, modules);
  return p;
}

PipelineLayout even_pipeline_layout(int ranks, int chunks, int64_t layers, int64_t modules) {
  const int64_t stages = int64_t{ranks} * chunks, each = stages > 0 ? layers / stages : 0;
  if (ranks < 1 || chunks < 1 || each < 1)
    throw Error(fmt::format("{} layers over {} pipeline ranks with {} chunks: a stage would have no layer",
                            layers, ranks, chunks),
                "choose fewer ranks or chunks, or write a layout");
  PipelineLayout p{ranks, std::vector<StageParts>(static_cast<size_t>(stages))};
  const int64_t rest = layers % stages, from = (stages - rest + 1) / 2;
  int64_t next = 0;
  for (int64_t s = 0; s < stages; ++s) {
    StageParts& stage = p.stages[static_cast<size_t>(s)];
    stage.first_layer = next;
    stage.layers = each + (s >= from && s < from + rest ? 1 : 0);
    next += stage.layers;
  }
  p.stages.front().embedding = true;
  p.stages.back().modules = modules;
  p.stages.back().loss = true;
  return p;
}

}  // namespace ingot
