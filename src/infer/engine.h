// The continuous-batching engine: requests come and go while one loop runs the model's forward pass over the
// next rows of all of them. The forward is training's, so tokens and log-probabilities have the bits that
// training computes, and do not depend on what else runs, on how prompts are divided into calls, on cached
// prefixes, on sequences that were recomputed, or on threads (docs/numerics.md); the one exception is
// LatentDecoding::absorbed.
//
// A call has at most `token_budget` rows: the next token of every live sequence, oldest first, then pieces of
// waiting prompts (schedule.h). Where pages are short, prefixes that nobody uses go first, then the youngest
// sequence gives its pages back and is recomputed later.
//
// Thread-safety: submit() and cancel() from any thread, stats() too; everything else by the one thread that
// runs the loop. The model must not change during step(); between steps it may (see Weights below).
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "infer/prefix_cache.h"
#include "infer/request.h"
#include "infer/row_sampler.h"
#include "models/model.h"
#include "ops/sequence/sequence_store.h"
#include "tokenizer/tokenizer.h"

namespace ingot {

/// Samples of a request at most.
constexpr int64_t kMaxSamples = 4096;

/// How latent attention (MLA) reads its cache of latents. materialised: recomputes keys and values, with the
/// bits of training. absorbed: attends in the latent space, with much less work per cached token and other
/// roundings.
enum class LatentDecoding { materialised, absorbed };

/// What happens to live sequences when the weights' version has changed. recompute: their cache is dropped
/// and recomputed, so that every later token is drawn by the new weights alone. keep: they finish on what
/// was cached; each token says its version.
enum class OnNewWeights : uint8_t { recompute, keep };

struct EngineOptions {
  int64_t token_budget = 512;  ///< rows of a call, at least 1
  /// Memory of cached sequences, in pages of 64 tokens; 0: as many as cache_bytes hold.
  int64_t max_pages = 0;
  /// 0: enough for 8 sequences of the model's context, at most 2 GiB, at least one context.
  int64_t cache_bytes = 0;
  int64_t vocab = 0;         ///< draw only ids below it; 0: the tokenizer's, else all of the model's
  bool prefix_cache = true;  ///< keep the pages of finished sequences for prompts that begin alike
  LatentDecoding latents = LatentDecoding::materialised;
  OnNewWeights on_new_weights = OnNewWeights::recompute;
};

struct EngineStats {
  int64_t waiting = 0, running = 0;  ///< samples without and with cached tokens
  int64_t calls = 0;
  int64_t prompt_tokens = 0;  ///< of requests that were admitted
  int64_t cached_tokens = 0;  ///< of these, found in the prefix cache
  int64_t output_tokens = 0;  ///< token events
  int64_t computed_rows = 0;  ///< rows of all calls, recomputed ones included
  int64_t finished = 0;       ///< samples
  int64_t preemptions = 0;
  int64_t pages = 0, cached_pages = 0,
          page_limit = 0;  ///< in use, of these only by the prefix cache, at most
  int64_t page_bytes = 0;
  uint64_t weights = 0;  ///< version of the last call
};

/// The layout of a cached sequence of the model.
SequenceLayout sequence_layout(const Model& model);

class Engine {
 public:
  /// `model` must outlive the engine. Without a tokenizer events have no text, and stop strings are refused.
  /// Error: the model cannot decode token by token (experts that choose their tokens).
  Engine(const Model& model, std::optional<Tokenizer> tokenizer, EngineOptions options = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Throws an Error for what can be seen to be wrong: an empty prompt, ids outside the vocabulary, a prompt
  /// that the context or the cache cannot hold, options outside their ranges. Nothing has happened then.
  RequestId submit(Request request, Sink sink);
  /// Ends all samples of a request with FinishReason::cancelled, at the next step; an unknown id is ignored.
  void cancel(RequestId request);
  /// Runs one call of the model. False: there is nothing to do.
  bool step();
  void run_until_idle();
  /// Waits until there is something to do, or for `longest`. True: there is.
  bool wait_for_work(std::chrono::milliseconds longest);
  /// Drops the prefix cache. Pages of live sequences stay.
  void drop_cached_prefixes();
  EngineStats stats() const;

  const Model& model() const { return model_; }
  const std::optional<Tokenizer>& tokenizer() const { return tokenizer_; }
  const EngineOptions& options() const { return options_; }
  /// Adds the time of each op to `profile` from now on; nullptr: stops.
  void set_profile(TapeProfile* profile) { profile_ = profile; }

 private:
  struct RequestState;
  struct Sample;
  struct Member;
  struct Call;
  class RouteRecorder;
  using Samples = std::vector<std::unique_ptr<Sample>>;

  void check(const Request& request) const;
  void receive();
  void follow_weights();
  void admit(Sample& sample);
  void plan(Call& call);
  void preempt(Sample& sample);
  void forward(Call& call);
  void note_routes(const Member& member, const RouteRecorder& recorder);
  void score_prompts(Call& call, Context& c, const Value& hidden_TD);
  void draw(Call& call, Context& c, const Value& hidden_TD);
  void accept(Sample& sample, const DrawnToken& drawn);
  void send_scores(Sample& sample);
  void finish(Sample& sample, FinishReason reason, const Error* error = nullptr);
  void keep_pages(Sample& sample);
  void sweep();
  void publish();
  Tensor gather(const Tensor& hidden_TD, std::span<const int64_t> rows);

  const Model& model_;
  const std::optional<Tokenizer> tokenizer_;
  EngineOptions options_;
  int64_t drawn_vocab_ = 0;
  SequenceStore store_;
  PrefixCache cache_;
  HeapArena arena_;
  std::vector<std::byte>
      gathered_;  ///< kept between calls: allocating a megabyte costs a page fault per page
  std::vector<DrawnToken> drawn_;
  Samples samples_;  ///< oldest first
  uint64_t weights_ = 0;
  TapeProfile* profile_ = nullptr;
  EngineStats counts_;

  mutable std::mutex mutex_;  ///< of what follows
  std::condition_variable arrived_;
  std::vector<std::shared_ptr<RequestState>> inbox_;
  std::vector<RequestId> cancelled_;
  RequestId next_id_ = 1;
  EngineStats published_;
};

}  // namespace ingot
