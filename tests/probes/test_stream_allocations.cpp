// Keeps the size of the largest allocation. In a file of its own, so that no caller sees through these functions.
#include <atomic>
#include <cstdlib>
#include <new>

std::atomic<std::size_t> largest_allocation{0};

void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  std::size_t seen = largest_allocation;
  while (size > seen && !largest_allocation.compare_exchange_weak(seen, size)) {
  }
  return std::malloc(size);
}
void* operator new(std::size_t size) {
  if (void* p = operator new(size, std::nothrow))
    return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
