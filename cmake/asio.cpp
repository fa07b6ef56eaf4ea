// The compiled half of Asio: once, instead of in every file that includes it.
#include <boost/asio/impl/src.hpp>
