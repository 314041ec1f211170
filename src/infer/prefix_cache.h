// Pages of the sequence store by the ids that they hold: a tree whose edges are 64 ids each, so that a prompt
// that begins like an earlier sequence need not be recomputed. A page also has what CCA's convolutions
// keep at its end. Every page was computed by the same weights: whoever changes them clears the tree. Not
// thread-safe.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "ops/sequence/sequence_store.h"

namespace ingot {

class PrefixCache {
 public:
  using Page = SequenceState::Page;
  static constexpr int64_t kTokens = SequenceState::kPageTokens;

  PrefixCache();
  ~PrefixCache();

  /// The pages of the longest known prefix of `ids`; only whole pages.
  std::vector<Page> find(std::span<const int32_t> ids);
  /// Adds the pages of the first 64 * pages ids. Where a page was known before, `pages` gets the known one.
  void insert(std::span<const int32_t> ids, std::span<Page> pages);
  /// Forgets the least recently used pages that nobody else holds, up to `pages` of them; returns how many.
  int64_t evict(int64_t pages);
  void clear();
  int64_t pages() const { return static_cast<int64_t>(used_.size()); }
  /// Of these, held by nobody else: what evict() could give back.
  int64_t unused_pages() const;

 private:
  using Ids = std::array<int32_t, static_cast<size_t>(kTokens)>;
  struct Node;
  using Path = std::vector<Node*>;
  void touch(const Path& path);

  std::unique_ptr<Node> root_;
  /// By the time of last use. A node is used whenever one below it is, and later: the first is a leaf.
  std::map<uint64_t, Node*> used_;
  uint64_t clock_ = 0;
};

}  // namespace ingot
