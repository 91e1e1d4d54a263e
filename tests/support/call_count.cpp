#include "support/call_count.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <ctime>
#include <dlfcn.h>
#include <malloc.h>
#include <new>
#include <ostream>
#include <pthread.h>

// In a source of its own: where the compiler sees both ends of an allocation, it takes `free` for a mismatch.

namespace weft::test {

constinit thread_local CallCount call_count;

namespace {

std::atomic<std::int64_t> blocks{0};

void count(std::uint64_t Calls::*calls) noexcept {
  Calls& side = call_count.in_device_call ? call_count.inside : call_count.outside;
  ++(side.*calls);
}

/// Null when there is no memory.
void* try_allocate(std::size_t bytes, std::size_t alignment) noexcept {
  count(&Calls::news);
  if (call_count.failing_new > 0 && --call_count.failing_new == 0) return nullptr;
  void* memory = nullptr;
  if (posix_memalign(&memory, std::max(alignment, sizeof(void*)), std::max<std::size_t>(bytes, 1)) != 0) return nullptr;
  blocks.fetch_add(1, std::memory_order_relaxed);
  return memory;
}

void* allocate(std::size_t bytes, std::size_t alignment) {
  void* memory = try_allocate(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void release(void* memory) noexcept {
  if (memory == nullptr) return;
  blocks.fetch_sub(1, std::memory_order_relaxed);
  std::free(memory);
}

}  // namespace

std::int64_t live_blocks() noexcept { return blocks.load(std::memory_order_relaxed); }

std::ostream& operator<<(std::ostream& out, const Calls& calls) {
  return out << calls.news << " of operator new, " << calls.mallocs << " of malloc, " << calls.mutexes
             << " of mutexes, " << calls.rwlocks << " of rwlocks, " << calls.conditions << " of condition variables";
}

}  // namespace weft::test

void* operator new(std::size_t bytes) { return weft::test::allocate(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return weft::test::allocate(bytes, static_cast<std::size_t>(alignment));
}
// Part of the set: the library's stable_sort allocates by it.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return weft::test::try_allocate(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void operator delete(void* memory) noexcept { weft::test::release(memory); }
void operator delete(void* memory, std::size_t) noexcept { weft::test::release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { weft::test::release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { weft::test::release(memory); }

#if !WEFT_SANITIZED

namespace weft::test {
namespace {

/// A function of the C library that this program stands in front of. Looked up by the first call, which may come
/// before any constructor has run: so no guarded static.
template <class Result, class... Arguments>
class Original {
 public:
  constexpr Original(const char* name, std::uint64_t Calls::*calls) noexcept : name_(name), calls_(calls) {}

  Result operator()(Arguments... arguments) {
    count(calls_);
    Function function = function_.load(std::memory_order_relaxed);
    if (function == nullptr) {
      function = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name_));
      function_.store(function, std::memory_order_relaxed);
    }
    return function(arguments...);
  }

 private:
  using Function = Result (*)(Arguments...);
  const char* name_;
  std::uint64_t Calls::*calls_;
  std::atomic<Function> function_{nullptr};
};

template <class... Arguments>
using OriginalLock = Original<int, Arguments...>;

constinit OriginalLock<pthread_mutex_t*> mutex_lock("pthread_mutex_lock", &Calls::mutexes);
constinit OriginalLock<pthread_mutex_t*> mutex_trylock("pthread_mutex_trylock", &Calls::mutexes);
constinit OriginalLock<pthread_mutex_t*, const timespec*> mutex_timedlock("pthread_mutex_timedlock", &Calls::mutexes);
constinit OriginalLock<pthread_mutex_t*, clockid_t, const timespec*> mutex_clocklock("pthread_mutex_clocklock",
                                                                                     &Calls::mutexes);
constinit OriginalLock<pthread_rwlock_t*> rwlock_rdlock("pthread_rwlock_rdlock", &Calls::rwlocks);
constinit OriginalLock<pthread_rwlock_t*> rwlock_wrlock("pthread_rwlock_wrlock", &Calls::rwlocks);
constinit OriginalLock<pthread_rwlock_t*> rwlock_tryrdlock("pthread_rwlock_tryrdlock", &Calls::rwlocks);
constinit OriginalLock<pthread_rwlock_t*> rwlock_trywrlock("pthread_rwlock_trywrlock", &Calls::rwlocks);
constinit OriginalLock<pthread_cond_t*> cond_signal("pthread_cond_signal", &Calls::conditions);
constinit OriginalLock<pthread_cond_t*> cond_broadcast("pthread_cond_broadcast", &Calls::conditions);
constinit OriginalLock<pthread_cond_t*, pthread_mutex_t*> cond_wait("pthread_cond_wait", &Calls::conditions);
constinit OriginalLock<pthread_cond_t*, pthread_mutex_t*, const timespec*> cond_timedwait("pthread_cond_timedwait",
                                                                                          &Calls::conditions);
constinit OriginalLock<pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*> cond_clockwait(
    "pthread_cond_clockwait", &Calls::conditions);

}  // namespace
}  // namespace weft::test

// glibc's own names for the functions behind these, so that no look-up stands in the way of the first allocation.
extern "C" {
void* __libc_malloc(std::size_t bytes) noexcept;
void* __libc_calloc(std::size_t count, std::size_t bytes) noexcept;
void* __libc_realloc(void* memory, std::size_t bytes) noexcept;
void* __libc_memalign(std::size_t alignment, std::size_t bytes) noexcept;

void* malloc(std::size_t bytes) noexcept {
  weft::test::count(&weft::test::Calls::mallocs);
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) noexcept {
  weft::test::count(&weft::test::Calls::mallocs);
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, std::size_t bytes) noexcept {
  weft::test::count(&weft::test::Calls::mallocs);
  return __libc_realloc(memory, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) noexcept {
  weft::test::count(&weft::test::Calls::mallocs);
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept { return memalign(alignment, bytes); }
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) noexcept {
  if (alignment % sizeof(void*) != 0 || (alignment & (alignment - 1)) != 0 || alignment == 0) return EINVAL;
  void* const allocated = memalign(alignment, bytes);
  if (allocated == nullptr) return ENOMEM;
  *memory = allocated;
  return 0;
}

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept { return weft::test::mutex_lock(mutex); }
int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept { return weft::test::mutex_trylock(mutex); }
int pthread_mutex_timedlock(pthread_mutex_t* mutex, const timespec* end) noexcept {
  return weft::test::mutex_timedlock(mutex, end);
}
int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock, const timespec* end) noexcept {
  return weft::test::mutex_clocklock(mutex, clock, end);
}
int pthread_rwlock_rdlock(pthread_rwlock_t* lock) noexcept { return weft::test::rwlock_rdlock(lock); }
int pthread_rwlock_wrlock(pthread_rwlock_t* lock) noexcept { return weft::test::rwlock_wrlock(lock); }
int pthread_rwlock_tryrdlock(pthread_rwlock_t* lock) noexcept { return weft::test::rwlock_tryrdlock(lock); }
int pthread_rwlock_trywrlock(pthread_rwlock_t* lock) noexcept { return weft::test::rwlock_trywrlock(lock); }
int pthread_cond_signal(pthread_cond_t* condition) noexcept { return weft::test::cond_signal(condition); }
int pthread_cond_broadcast(pthread_cond_t* condition) noexcept { return weft::test::cond_broadcast(condition); }
int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  return weft::test::cond_wait(condition, mutex);
}
int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex, const timespec* end) {
  return weft::test::cond_timedwait(condition, mutex, end);
}
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock, const timespec* end) {
  return weft::test::cond_clockwait(condition, mutex, clock, end);
}
}

#endif
