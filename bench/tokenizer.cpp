// One timed piece of tokenizer work, for bench/tokenizer.py, which interleaves it with its peer. Documents
// are a file's text cut at every form feed. Prints seconds, and a hash of the result that the peer must reach
// too.
// usage: ingot_bench_tokenizer encode TOKENIZER.json TEXT | train PATTERN VOCABULARY TEXT [SAVE.json]
// threads: $INGOT_THREADS
#include "tokenizer/tokenizer.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/file_system.h"
#include "tokenizer/bpe_trainer.h"
#include "tokenizer/tokenizer_spec.h"

using namespace ingot;

namespace {

std::vector<std::string_view> documents_of(std::string_view text) {
  std::vector<std::string_view> documents;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\f'), text.size());
    if (end > 0) documents.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return documents;
}

uint64_t add_to_hash(uint64_t hash, int32_t value) {
  return hash * 1000003 + static_cast<uint64_t>(value) + 1;
}

int encode(const std::string& tokenizer_file, const std::string& text_file) {
  const Tokenizer tokenizer = Tokenizer::load(tokenizer_file);
  const std::string text = real_file_system().read(text_file);
  const auto documents = documents_of(text);
  const double start = monotonic_seconds();
  const auto ids = tokenizer.encode_batch(documents);
  const double seconds = monotonic_seconds() - start;
  uint64_t hash = 0;
  size_t tokens = 0;
  for (const auto& document : ids) {
    for (const int32_t id : document) hash = add_to_hash(hash, id);
    tokens += document.size();
  }
  std::printf("{\"seconds\": %.6f, \"hash\": \"%016llx\", \"tokens\": %zu}\n", seconds,
              static_cast<unsigned long long>(hash), tokens);
  return 0;
}

int train(const std::string& pattern, const std::string& vocabulary, const std::string& text_file,
          const char* save) {
  const std::string text = real_file_system().read(text_file);
  const auto documents = documents_of(text);
  const double start = monotonic_seconds();
  BpeTrainer trainer(
      {.vocab_size = std::atoi(vocabulary.c_str()), .pattern = pattern, .special_tokens = {"<|endoftext|>"}});
  trainer.add(documents);
  const double counted = monotonic_seconds();
  const Tokenizer tokenizer = trainer.train();
  const double seconds = monotonic_seconds() - start;
  uint64_t hash = 0;
  for (const auto& [left, right] : tokenizer.spec().merges)
    hash = add_to_hash(add_to_hash(hash, left), right);
  std::printf("{\"seconds\": %.6f, \"count_seconds\": %.6f, \"hash\": \"%016llx\"}\n", seconds,
              counted - start, static_cast<unsigned long long>(hash));
  if (save != nullptr) tokenizer.save(save);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  try {
    if (what == "encode" && argc == 4) return encode(argv[2], argv[3]);
    if (what == "train" && (argc == 5 || argc == 6))
      return train(argv[2], argv[3], argv[4], argc == 6 ? argv[5] : nullptr);
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  std::fprintf(stderr, "usage: %s encode TOKENIZER.json TEXT | train PATTERN VOCABULARY TEXT [SAVE.json]\n",
               argv[0]);
  return 2;
}
