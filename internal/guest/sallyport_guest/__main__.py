"""What a container's first process is started with."""

import sys

sys.path.insert(0, __file__.rpartition("/")[0].rpartition("/")[0])

import sallyport_guest.init

del sys.path[0]
sallyport_guest.init.main()
