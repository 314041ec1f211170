// A value on a tape, as the code of models holds it. tape.h says how long its buffer lives.
#pragma once
#include <cstdint>

#include "tensor/tensor.h"

namespace ingot {

class Tape;

/// Counted handle of a tensor on a tape. A default-constructed one is absent (an optional input).
class Value {
 public:
  Value() = default;
  Value(Tape* tape, int32_t id);
  Value(const Value& o);
  Value(Value&& o) noexcept;
  Value& operator=(Value o) noexcept;
  ~Value();
  bool defined() const { return tape_ != nullptr; }
  int32_t id() const { return id_; }
  const TensorMeta& meta() const;
  const Shape& shape() const { return meta().shape; }
  int64_t dim(int i) const { return meta().shape[i]; }
  DType dtype() const { return meta().dtype; }
  /// The data, once it has arrived from other ranks; valid while this handle exists.
  Tensor tensor() const;
  Tape* tape() const { return tape_; }

 private:
  Tape* tape_ = nullptr;
  int32_t id_ = -1;
};

}  // namespace ingot
