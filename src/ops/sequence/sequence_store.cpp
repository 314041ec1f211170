// See sequence_store.h.
#include "ops/sequence/sequence_store.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <new>

#include "base/parallel.h"
#include "device/memory/dense_pages.h"

namespace ingot {
namespace {

int64_t ring_slots(const SequenceLayout& l) {
  return l.rollback_tokens + 2;
}
int64_t conv_row_elements(const SequenceLayout& l) {
  return l.conv_channels + l.delayed_channels;
}
int64_t conv_row_bytes(const SequenceLayout& l) {
  return conv_row_elements(l) * size_of(l.conv_dtype());
}

/// Tokens before a page's end whose convolution inputs lie in the page.
constexpr int64_t kBorderRows = 2;

}  // namespace

namespace detail {

/// Pages of equal size with a limit. A page goes back when the last sequence that holds it lets go; pages
/// keep the pool alive.
class PagePool : public std::enable_shared_from_this<PagePool> {
 public:
  PagePool(const SequenceLayout& layout, int64_t limit) : layout_(layout), limit_(limit) {
    INGOT_CHECK(layout.layers > 0 && layout.kv_heads > 0 && layout.head_width > 0 && limit >= 0 &&
                    is_floating(layout.dtype) && layout.conv_channels >= 0 && layout.delayed_channels >= 0 &&
                    layout.rollback_tokens >= 0,
                "sequence layout: {} layers, {} heads of {}, {} pages", layout.layers, layout.kv_heads,
                layout.head_width, limit);
  }
  ~PagePool() {
    for (std::byte* page : free_) {
      if (page_bytes() >= kDense)
        unmap_densely(page, page_bytes());
      else
        ::operator delete(page, kAlign);
    }
  }
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  const SequenceLayout& layout() const { return layout_; }
  int64_t limit() const { return limit_; }
  /// Keys of one layer in a page, and its values.
  int64_t key_bytes() const { return block_bytes(layout_.head_width); }
  int64_t value_bytes() const { return block_bytes(layout_.values()); }
  /// Keys and values of all layers; behind them per layer the rows of the page's last two tokens that
  /// convolutions keep.
  int64_t page_bytes() const { return conv_begin() + layout_.layers * kBorderRows * conv_row_bytes(layout_); }
  int64_t conv_begin() const { return layout_.layers * (key_bytes() + value_bytes()); }
  int64_t in_use() const {
    const std::lock_guard lock(mutex_);
    return in_use_;
  }
  int64_t allocated() const {
    const std::lock_guard lock(mutex_);
    return in_use_ + static_cast<int64_t>(free_.size());
  }

  /// All of them or an Error.
  std::vector<std::shared_ptr<std::byte>> take(int64_t count) {
    std::vector<std::shared_ptr<std::byte>> pages;
    pages.reserve(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      std::byte* page = take_one(count);
      pages.emplace_back(page, [self = shared_from_this()](std::byte* p) { self->give_back(p); });
    }
    return pages;
  }

 private:
  static constexpr std::align_val_t kAlign{64};
  static constexpr int64_t kDense = 1 << 16;  ///< bytes from which a page lies in huge pages

  int64_t block_bytes(int64_t width) const {
    return SequenceState::kPageTokens * layout_.kv_heads * width * size_of(layout_.dtype);
  }

  std::byte* take_one(int64_t wanted) {
    const std::lock_guard lock(mutex_);
    if (in_use_ >= limit_)
      throw Error(
          fmt::format(
              "the sequence cache is full: {} pages of {} tokens ({} bytes each) are in use, the limit "
              "is {}, and a sequence needs {} more",
              in_use_, SequenceState::kPageTokens, page_bytes(), limit_, wanted),
          "run fewer sequences at a time, shorten them, or raise the cache limit");
    std::byte* page = nullptr;
    if (!free_.empty()) {
      page = free_.back();
      free_.pop_back();
    } else {
      free_.reserve(static_cast<size_t>(in_use_) + 1);  // so that give_back cannot fail
      try {
        const int64_t bytes = page_bytes();
        page = static_cast<std::byte*>(bytes >= kDense ? map_densely(bytes)
                                                       : ::operator new(static_cast<size_t>(bytes), kAlign));
      } catch (const std::bad_alloc&) {
        throw Error(
            fmt::format("no memory for another cache page of {} bytes after {}", page_bytes(), in_use_),
            "lower the cache limit");
      }
    }
    ++in_use_;
    return page;
  }

  void give_back(std::byte* page) {
    const std::lock_guard lock(mutex_);
    free_.push_back(page);
    --in_use_;
  }

  const SequenceLayout layout_;
  const int64_t limit_;
  mutable std::mutex mutex_;
  std::vector<std::byte*> free_;
  int64_t in_use_ = 0;
};

}  // namespace detail

namespace {

/// Widens `count` elements; both types are floating and `to` is f32 or f64.
void widen(std::byte* to, DType to_type, const std::byte* from, DType from_type, int64_t count) {
  INGOT_CHECK((to_type == DType::f64) == (from_type == DType::f64), "{} state of {} rows", name_of(to_type),
              name_of(from_type));
  if (from_type != DType::bf16) {
    std::memcpy(to, from, static_cast<size_t>(count * size_of(from_type)));
    return;
  }
  const auto* source = reinterpret_cast<const bf16*>(from);
  for (int64_t i = 0; i < count; ++i) reinterpret_cast<float*>(to)[i] = to_float(source[i]);
}

}  // namespace

SequenceState::SequenceState(std::shared_ptr<detail::PagePool> pool) : pool_(std::move(pool)) {
  const SequenceLayout& l = pool_->layout();
  kv_tokens_.assign(static_cast<size_t>(l.layers), 0);
  conv_tokens_.assign(static_cast<size_t>(l.layers), 0);
  // One row more than the ring: zeros, the tokens before the first.
  if (l.has_conv()) conv_.resize(static_cast<size_t>((l.layers * ring_slots(l) + 1) * conv_row_bytes(l)));
}
SequenceState::SequenceState(SequenceState&&) noexcept = default;
SequenceState& SequenceState::operator=(SequenceState&&) noexcept = default;
SequenceState::~SequenceState() = default;

const SequenceLayout& SequenceState::layout() const {
  return pool_->layout();
}

int64_t SequenceState::tokens() const {
  return *std::min_element(kv_tokens_.begin(), kv_tokens_.end());
}

int64_t SequenceState::bytes() const {
  return static_cast<int64_t>(pages_.size()) * pool_->page_bytes() + static_cast<int64_t>(conv_.size());
}

SequenceState SequenceState::fork() const {
  const int64_t n = tokens();
  for (const auto* lengths : {&kv_tokens_, layout().has_conv() ? &conv_tokens_ : &kv_tokens_})
    for (const int64_t length : *lengths)
      INGOT_CHECK(length == n, "a sequence of {} tokens forks while a layer has {}", n, length);
  SequenceState copy(pool_);
  copy.pages_ = pages_;
  copy.kv_tokens_ = kv_tokens_;
  copy.conv_tokens_ = conv_tokens_;
  copy.conv_ = conv_;
  return copy;
}

void SequenceState::rollback(int64_t length) {
  INGOT_CHECK(length >= 0 && length <= tokens(), "rollback of {} tokens to {}", tokens(), length);
  const SequenceLayout& l = layout();
  if (l.has_conv())
    for (const int64_t have : conv_tokens_)
      if (have - length > l.rollback_tokens && length > 0)
        throw Error(
            fmt::format("a sequence of {} tokens cannot roll back to {}: convolution inputs are kept for {} "
                        "tokens",
                        have, length, l.rollback_tokens),
            "fork the sequence before and restore the fork, or raise rollback_tokens");
  std::fill(kv_tokens_.begin(), kv_tokens_.end(), length);
  if (l.has_conv()) std::fill(conv_tokens_.begin(), conv_tokens_.end(), length);
  pages_.resize(static_cast<size_t>(SequenceStore::pages_for(length)));
}

SequenceState::Page SequenceState::full_page(int64_t page) const {
  INGOT_CHECK(page >= 0 && (page + 1) * kPageTokens <= tokens(), "page {} of {} tokens", page, tokens());
  return pages_[static_cast<size_t>(page)];
}

void SequenceState::replace_page(int64_t page, Page same) {
  INGOT_CHECK(page >= 0 && (page + 1) * kPageTokens <= tokens(), "page {} of {} tokens", page, tokens());
  pages_[static_cast<size_t>(page)] = std::move(same);
}

void SequenceState::adopt(std::span<const Page> pages) {
  INGOT_CHECK(pages_.empty() && tokens() == 0, "a sequence of {} tokens adopts pages", tokens());
  if (pages.empty()) return;
  const SequenceLayout& l = layout();
  const int64_t length = static_cast<int64_t>(pages.size()) * kPageTokens;
  pages_.assign(pages.begin(), pages.end());
  std::fill(kv_tokens_.begin(), kv_tokens_.end(), length);
  if (!l.has_conv()) return;
  std::fill(conv_tokens_.begin(), conv_tokens_.end(), length);
  for (int64_t layer = 0; layer < l.layers; ++layer)
    for (int64_t p = length - kBorderRows; p < length; ++p)
      std::memcpy(conv_slot(layer, p), border_row(layer, p), static_cast<size_t>(conv_row_bytes(l)));
}

/// Pages from `first` on that a fork or a cache holds too.
std::vector<int64_t> SequenceState::shared_pages(int64_t first) const {
  std::vector<int64_t> shared;
  for (int64_t p = first; p < pages(); ++p)
    if (pages_[static_cast<size_t>(p)].use_count() > 1) shared.push_back(p);
  return shared;
}

int64_t SequenceState::pages_to_reserve(int64_t rows) const {
  if (rows == 0) return 0;
  const int64_t have = tokens();
  return std::max<int64_t>(0, SequenceStore::pages_for(have + rows) - pages()) +
         static_cast<int64_t>(shared_pages(have / kPageTokens).size());
}

void SequenceState::reserve(int64_t rows) {
  INGOT_CHECK(rows >= 0);
  const int64_t have = tokens();
  if (rows == 0) return;
  const int64_t grow = std::max<int64_t>(0, SequenceStore::pages_for(have + rows) - pages());
  // The page that is written first may be shared with a fork; so may later ones after a rollback elsewhere.
  const std::vector<int64_t> shared = shared_pages(have / kPageTokens);
  if (grow == 0 && shared.empty()) return;
  auto fresh = pool_->take(grow + static_cast<int64_t>(shared.size()));
  for (const int64_t p : shared) {
    std::memcpy(fresh.back().get(), pages_[static_cast<size_t>(p)].get(),
                static_cast<size_t>(pool_->page_bytes()));
    pages_[static_cast<size_t>(p)] = std::move(fresh.back());
    fresh.pop_back();
  }
  for (auto& page : fresh) pages_.push_back(std::move(page));
}

std::byte* SequenceState::layer_of_page(int64_t layer, int64_t page) const {
  INGOT_CHECK(
      layer >= 0 && layer < layout().layers && page >= 0 && page < static_cast<int64_t>(pages_.size()),
      "layer {} page {} of a sequence with {} pages", layer, page, pages_.size());
  return pages_[static_cast<size_t>(page)].get() + layer * (pool_->key_bytes() + pool_->value_bytes());
}

const void* SequenceState::keys(int64_t layer, int64_t page) const {
  return layer_of_page(layer, page);
}
const void* SequenceState::values(int64_t layer, int64_t page) const {
  return layer_of_page(layer, page) + pool_->key_bytes();
}

void SequenceState::append_kv(int64_t layer, int64_t position, const Tensor& packed) {
  const KvRows one{this, position, packed};
  announce_kv(layer, {&one, 1});
  write_kv(layer, {&one, 1});
}

void SequenceState::write_kv(int64_t layer, std::span<const KvRows> all) {
  if (all.empty()) return;
  const int64_t heads = all[0].state->layout().kv_heads;
  parallel_for(static_cast<int64_t>(all.size()) * heads, heads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) write_kv(layer, all[static_cast<size_t>(i / heads)], i % heads);
  });
}

void SequenceState::announce_kv(int64_t layer, std::span<const KvRows> all) {
  for (const KvRows& k : all) {
    const SequenceLayout& l = k.state->layout();
    const int64_t width = k.packed.dim(1), needed = l.kv_heads * (l.head_width + l.values());
    INGOT_CHECK(k.packed.dtype() == l.dtype && width >= needed, "the cache holds {} rows of {}, got {}",
                name_of(l.dtype), needed, k.packed.meta.str());
    const int64_t have = k.state->kv_tokens_.at(static_cast<size_t>(layer));
    INGOT_CHECK(have == k.position, "layer {} has {} tokens, append at {}", layer, have, k.position);
    // Does nothing for all layers of a call but the first.
    k.state->reserve(k.position + k.packed.dim(0) - k.state->tokens());
  }
  for (const KvRows& k : all) k.state->kv_tokens_[static_cast<size_t>(layer)] += k.packed.dim(0);
}

/// Copies `count` elements to every 64th.
template <class T>
void scatter(std::byte* to, const std::byte* from, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    reinterpret_cast<T*>(to)[i * SequenceState::kPageTokens] = reinterpret_cast<const T*>(from)[i];
}

void SequenceState::write_kv(int64_t layer, const KvRows& of, int64_t head) {
  const auto& [state, position, packed] = of;
  const SequenceLayout& l = state->layout();
  const int64_t rows = packed.dim(0), width = packed.dim(1), size = size_of(l.dtype);
  const int64_t key_bytes = l.head_width * size, value_bytes = l.values() * size,
                row_bytes = l.kv_heads * (key_bytes + value_bytes);
  for (int64_t r = 0; r < rows; ++r) {
    const auto* keys = static_cast<const std::byte*>(packed.data) + (r + 1) * width * size - row_bytes;
    const auto *key = keys + head * key_bytes, *value = keys + l.kv_heads * key_bytes + head * value_bytes;
    std::byte* page = state->layer_of_page(layer, (position + r) / kPageTokens);
    const int64_t slot = (position + r) % kPageTokens;
    std::byte* to = page + head * kPageTokens * key_bytes;
    if (!l.turned_keys())
      std::memcpy(to + slot * key_bytes, key, static_cast<size_t>(key_bytes));
    else if (size == 2)
      scatter<uint16_t>(to + slot * size, key, l.head_width);
    else if (size == 4)
      scatter<uint32_t>(to + slot * size, key, l.head_width);
    else
      scatter<uint64_t>(to + slot * size, key, l.head_width);
    std::memcpy(page + state->pool_->key_bytes() + (head * kPageTokens + slot) * value_bytes, value,
                static_cast<size_t>(value_bytes));
  }
}

std::byte* SequenceState::conv_slot(int64_t layer, int64_t position) {
  const SequenceLayout& l = layout();
  return conv_.data() + (layer * ring_slots(l) + position % ring_slots(l)) * conv_row_bytes(l);
}

/// Where a page keeps the row of one of its last two tokens.
std::byte* SequenceState::border_row(int64_t layer, int64_t position) const {
  const int64_t row = position % kPageTokens - (kPageTokens - kBorderRows);
  return pages_[static_cast<size_t>(position / kPageTokens)].get() + pool_->conv_begin() +
         (layer * kBorderRows + row) * conv_row_bytes(layout());
}

void SequenceState::append_conv(int64_t layer, int64_t position, const Tensor& packed) {
  const SequenceLayout& l = layout();
  const int64_t rows = packed.dim(0), width = packed.dim(1), size = size_of(packed.dtype());
  INGOT_CHECK(l.has_conv() && width >= conv_row_elements(l), "{} into a state of {} channels",
              packed.meta.str(), conv_row_elements(l));
  auto& have = conv_tokens_.at(static_cast<size_t>(layer));
  INGOT_CHECK(have == position, "layer {} has {} tokens, append at {}", layer, have, position);
  reserve(position + rows - tokens());  // a full pool is found here, before anything has changed
  const auto keep = [&](int64_t r, std::byte* slot) {
    const auto* row = static_cast<const std::byte*>(packed.data) + r * width * size;
    widen(slot, l.conv_dtype(), row, packed.dtype(), l.conv_channels);
    widen(slot + l.conv_channels * size_of(l.conv_dtype()), l.conv_dtype(),
          row + (width - l.delayed_channels) * size, packed.dtype(), l.delayed_channels);
  };
  for (int64_t r = std::max<int64_t>(0, rows - ring_slots(l)); r < rows; ++r)
    keep(r, conv_slot(layer, position + r));
  for (int64_t end = (position / kPageTokens + 1) * kPageTokens; end - kBorderRows < position + rows;
       end += kPageTokens)
    for (int64_t p = std::max(position, end - kBorderRows); p < std::min(end, position + rows); ++p)
      keep(p - position, border_row(layer, p));
  have += rows;
}

const void* SequenceState::conv_row(int64_t layer, int64_t position) const {
  const SequenceLayout& l = layout();
  const int64_t have = conv_tokens_.at(static_cast<size_t>(layer));
  INGOT_CHECK(l.has_conv() && position < have && position >= have - 2,
              "row {} of layer {}, which has {} tokens", position, layer, have);
  if (position < 0) return conv_.data() + l.layers * ring_slots(l) * conv_row_bytes(l);
  return const_cast<SequenceState*>(this)->conv_slot(layer, position);
}

SequenceStore::SequenceStore(const SequenceLayout& layout, int64_t page_limit)
    : pool_(std::make_shared<detail::PagePool>(layout, page_limit)) {}
SequenceState SequenceStore::create() {
  return SequenceState(pool_);
}
const SequenceLayout& SequenceStore::layout() const {
  return pool_->layout();
}
int64_t SequenceStore::page_bytes() const {
  return pool_->page_bytes();
}
int64_t SequenceStore::page_limit() const {
  return pool_->limit();
}
int64_t SequenceStore::pages_in_use() const {
  return pool_->in_use();
}
int64_t SequenceStore::bytes() const {
  return pool_->allocated() * pool_->page_bytes();
}

}  // namespace ingot
