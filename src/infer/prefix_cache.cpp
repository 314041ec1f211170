// See prefix_cache.h.
#include "infer/prefix_cache.h"

#include <algorithm>

#include "base/error.h"

namespace ingot {

struct PrefixCache::Node {
  Node* parent = nullptr;
  Page page;
  uint64_t used = 0;
  std::map<Ids, std::unique_ptr<Node>> below;
  const Ids* ids = nullptr;  ///< the key of this node in parent->below
};

PrefixCache::PrefixCache() : root_(std::make_unique<Node>()) {}
PrefixCache::~PrefixCache() = default;

/// From the last node to the first, so that a node is always used later than those below it.
void PrefixCache::touch(const Path& path) {
  for (auto node = path.rbegin(); node != path.rend(); ++node) {
    used_.erase((*node)->used);
    used_[(*node)->used = ++clock_] = *node;
  }
}

std::vector<PrefixCache::Page> PrefixCache::find(std::span<const int32_t> ids) {
  std::vector<Page> pages;
  Path path;
  Node* node = root_.get();
  for (Ids key; static_cast<int64_t>(ids.size()) >= kTokens; ids = ids.subspan(key.size())) {
    std::copy_n(ids.begin(), key.size(), key.begin());
    const auto next = node->below.find(key);
    if (next == node->below.end()) break;
    path.push_back(node = next->second.get());
    pages.push_back(node->page);
  }
  touch(path);
  return pages;
}

void PrefixCache::insert(std::span<const int32_t> ids, std::span<Page> pages) {
  INGOT_CHECK(ids.size() >= pages.size() * static_cast<size_t>(kTokens));
  Path path;
  Node* node = root_.get();
  Ids key;
  for (size_t p = 0; p < pages.size(); ++p) {
    std::copy_n(ids.begin() + static_cast<std::ptrdiff_t>(p * key.size()), key.size(), key.begin());
    const auto [at, fresh] = node->below.try_emplace(key);
    if (fresh) {
      at->second = std::make_unique<Node>();
      at->second->parent = node, at->second->page = pages[p], at->second->ids = &at->first;
    } else {
      pages[p] = at->second->page;
    }
    path.push_back(node = at->second.get());
  }
  touch(path);
}

int64_t PrefixCache::evict(int64_t pages) {
  int64_t given = 0;
  for (auto at = used_.begin(); at != used_.end() && given < pages;) {
    Node* node = at->second;
    if (!node->below.empty() || node->page.use_count() > 1) {
      ++at;
      continue;
    }
    at = used_.erase(at);
    node->parent->below.erase(Ids(*node->ids));  // the last use of `node`
    ++given;
  }
  return given;
}

void PrefixCache::clear() {
  used_.clear();
  root_ = std::make_unique<Node>();
}

int64_t PrefixCache::unused_pages() const {
  return std::count_if(used_.begin(), used_.end(),
                       [](const auto& entry) { return entry.second->page.use_count() == 1; });
}

}  // namespace ingot
