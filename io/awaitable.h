/// The type of a coroutine, for headers that only declare some: without the headers of Asio.
#pragma once

namespace boost::asio {
class any_io_executor;
template <typename T, typename Executor>
class awaitable;
}  // namespace boost::asio

namespace dt::io {

template <class T>
using awaitable = boost::asio::awaitable<T, boost::asio::any_io_executor>;

}  // namespace dt::io
