package wasi

import "github.com/sallyport/sallyport/internal/sandbox/wasm/memfs"

// lookupFollow asks to follow a link at the end of a path.
const lookupFollow = 1 << 0

// Flags of path_open.
const (
	openCreate    = 1 << 0
	openDirectory = 1 << 1
	openExclusive = 1 << 2
	openTruncate  = 1 << 3
)

// at returns the directory of argument dir and the path of argument path.
func (c *call) at(dir, path int) (*memfs.File, string, Errno) {
	name, errno := c.path(path)
	if errno != success {
		return nil, "", errno
	}
	file, errno := c.dir(c.u32(dir))
	return file, name, errno
}

func (c *call) pathOpen() Errno {
	dir, name, errno := c.at(0, 2)
	lookup, open, rights, flags := c.u32(1), c.u32(4), c.args[5], c.u32(7)
	result, ok := c.bytes(c.u32(8), 4)
	switch {
	case errno != success:
		return errno
	case !ok || len(result) != 4:
		return errFault
	case open >= 1<<4 || flags&^flagsAll != 0:
		return errInvalid
	case c.full():
		return errTooManyFiles
	}
	file, err := c.cfg.FS.Open(dir, name, memfs.Mode{
		Read:      rights&rightRead != 0,
		Write:     rights&rightWrite != 0,
		Append:    flags&flagAppend != 0,
		Create:    open&openCreate != 0,
		Exclusive: open&openExclusive != 0,
		Truncate:  open&openTruncate != 0,
		Directory: open&openDirectory != 0,
		NoFollow:  lookup&lookupFollow == 0,
	})
	if err != nil {
		return number(err)
	}
	return c.put32(c.u32(8), c.add(&descriptor{file: file, flags: uint16(flags)}))
}

func (c *call) pathCreateDirectory() Errno {
	dir, name, errno := c.at(0, 1)
	if errno != success {
		return errno
	}
	return number(c.cfg.FS.Mkdir(dir, name))
}

func (c *call) pathRemoveDirectory() Errno {
	dir, name, errno := c.at(0, 1)
	if errno != success {
		return errno
	}
	return number(c.cfg.FS.Rmdir(dir, name))
}

func (c *call) pathUnlinkFile() Errno {
	dir, name, errno := c.at(0, 1)
	if errno != success {
		return errno
	}
	return number(c.cfg.FS.Unlink(dir, name))
}

func (c *call) pathFilestatGet() Errno {
	dir, name, errno := c.at(0, 2)
	if errno != success {
		return errno
	}
	info, err := c.cfg.FS.Stat(dir, name, c.u32(1)&lookupFollow != 0)
	if err != nil {
		return number(err)
	}
	return c.putStat(c.u32(4), info)
}

func (c *call) pathFilestatSetTimes() Errno {
	dir, name, errno := c.at(0, 2)
	if errno != success {
		return errno
	}
	t, errno := c.times(4)
	if errno != success {
		return errno
	}
	return number(c.cfg.FS.SetTimes(dir, name, c.u32(1)&lookupFollow != 0, t))
}

func (c *call) pathLink() Errno {
	dir, name, errno := c.at(0, 2)
	if errno != success {
		return errno
	}
	newDir, newName, errno := c.at(4, 5)
	if errno != success {
		return errno
	}
	return number(c.cfg.FS.Link(dir, name, c.u32(1)&lookupFollow != 0, newDir, newName))
}

func (c *call) pathRename() Errno {
	dir, name, errno := c.at(0, 1)
	if errno != success {
		return errno
	}
	newDir, newName, errno := c.at(3, 4)
	if errno != success {
		return errno
	}
	return number(c.cfg.FS.Rename(dir, name, newDir, newName))
}

func (c *call) pathSymlink() Errno {
	target, errno := c.path(0)
	if errno != success {
		return errno
	}
	dir, name, errno := c.at(2, 3)
	if errno != success {
		return errno
	}
	return number(c.cfg.FS.Symlink(target, dir, name))
}

func (c *call) pathReadlink() Errno {
	dir, name, errno := c.at(0, 1)
	if errno != success {
		return errno
	}
	buf, ok := c.bytes(c.u32(3), c.u32(4))
	if !ok {
		return errFault
	}
	target, err := c.cfg.FS.Readlink(dir, name)
	if err != nil {
		return number(err)
	}
	return c.put32(c.u32(5), uint32(copy(buf, target)))
}
