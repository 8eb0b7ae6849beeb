// SPDX-License-Identifier: GPL-2.0-only
/*
 * The stream of records: an unbounded chain of pages, read through /dev/qtap.
 *
 * Writers are queues in softirq context and must not sleep. The reader is woken
 * up only for a large chunk or a flush, to keep its cost low. In virtual time
 * it runs before time advances, so the chain stays short.
 */
#include <linux/fs.h>
#include <linux/list.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/poll.h>
#include <linux/spinlock.h>
#include <linux/uaccess.h>
#include <linux/wait.h>

#include "qtap.h"

#define QTAP_STREAM_CHUNK (256 * 1024)
#define QTAP_STREAM_SPARE_PAGES 128u

struct qtap_page {
	struct list_head list;
	u32 written;
	u32 taken;
	u8 data[];
};

#define QTAP_PAGE_BYTES ((u32)(PAGE_SIZE - sizeof(struct qtap_page)))

struct qtap_stream {
	spinlock_t lock;	/* protects everything but the mutex */
	struct list_head pages;	/* oldest first; only the last has free space */
	struct list_head spare;
	u32 spare_pages;
	size_t buffered;	/* bytes */
	bool flushed;		/* reads return any buffered data */
	u64 lost;		/* records lost for lack of memory */
	wait_queue_head_t wait;
	struct mutex reader;	/* serializes readers, so that records do not interleave */
};

static struct qtap_stream qtap_stream = {
	.lock = __SPIN_LOCK_UNLOCKED(qtap_stream.lock),
	.pages = LIST_HEAD_INIT(qtap_stream.pages),
	.spare = LIST_HEAD_INIT(qtap_stream.spare),
	.wait = __WAIT_QUEUE_HEAD_INITIALIZER(qtap_stream.wait),
	.reader = __MUTEX_INITIALIZER(qtap_stream.reader),
};

static u32 qtap_stream_room(struct qtap_stream *stream)
{
	struct qtap_page *page;

	if (list_empty(&stream->pages))
		return 0;
	page = list_last_entry(&stream->pages, struct qtap_page, list);
	return QTAP_PAGE_BYTES - page->written;
}

static struct qtap_page *qtap_stream_page(struct qtap_stream *stream)
{
	struct qtap_page *page = list_first_entry_or_null(&stream->spare,
							  struct qtap_page, list);

	if (page) {
		list_del(&page->list);
		stream->spare_pages--;
	} else {
		page = (struct qtap_page *)__get_free_page(GFP_ATOMIC | __GFP_NOWARN);
		if (!page)
			return NULL;
	}
	page->written = 0;
	page->taken = 0;
	return page;
}

/*
 * Allocates pages for @length bytes in advance, so that a record is written
 * completely or not at all.
 */
static bool qtap_stream_reserve(struct qtap_stream *stream, size_t length,
				struct list_head *fresh)
{
	size_t room = qtap_stream_room(stream);

	for (; room < length; room += QTAP_PAGE_BYTES) {
		struct qtap_page *page = qtap_stream_page(stream);

		if (!page) {
			while (!list_empty(fresh)) {
				list_move(fresh->next, &stream->spare);
				stream->spare_pages++;
			}
			return false;
		}
		list_add_tail(&page->list, fresh);
	}
	return true;
}

static void qtap_stream_append(struct qtap_stream *stream, const void *data,
			       size_t length, struct list_head *fresh)
{
	while (length) {
		u32 room = qtap_stream_room(stream);
		struct qtap_page *page;
		u32 part;

		if (!room) {
			list_move_tail(fresh->next, &stream->pages);
			continue;
		}
		page = list_last_entry(&stream->pages, struct qtap_page, list);
		part = min_t(size_t, room, length);
		memcpy(page->data + page->written, data, part);
		page->written += part;
		stream->buffered += part;
		data += part;
		length -= part;
	}
}

/* Writes a record and, if any, the array that follows it. */
void qtap_stream_write(const void *record, size_t length, const void *array, size_t array_length)
{
	struct qtap_stream *stream = &qtap_stream;
	LIST_HEAD(fresh);
	bool wake = false;

	spin_lock_bh(&stream->lock);
	if (qtap_stream_reserve(stream, length + array_length, &fresh)) {
		size_t before = stream->buffered;

		qtap_stream_append(stream, record, length, &fresh);
		qtap_stream_append(stream, array, array_length, &fresh);
		wake = before < QTAP_STREAM_CHUNK && stream->buffered >= QTAP_STREAM_CHUNK;
	} else {
		stream->lost++;
	}
	spin_unlock_bh(&stream->lock);
	if (wake)
		wake_up_interruptible_poll(&stream->wait, EPOLLIN | EPOLLRDNORM);
}

void qtap_stream_flush(void)
{
	struct qtap_stream *stream = &qtap_stream;

	spin_lock_bh(&stream->lock);
	stream->flushed = true;
	spin_unlock_bh(&stream->lock);
	wake_up_interruptible_poll(&stream->wait, EPOLLIN | EPOLLRDNORM);
}

static bool qtap_stream_ready(struct qtap_stream *stream)
{
	size_t buffered = READ_ONCE(stream->buffered);

	return buffered >= QTAP_STREAM_CHUNK || (buffered && READ_ONCE(stream->flushed));
}

/* Returns the page with the oldest unread bytes and their number. */
static struct qtap_page *qtap_stream_peek(struct qtap_stream *stream, u32 *length)
{
	struct qtap_page *page;

	spin_lock_bh(&stream->lock);
	page = list_first_entry_or_null(&stream->pages, struct qtap_page, list);
	*length = page ? page->written - page->taken : 0;
	spin_unlock_bh(&stream->lock);
	return *length ? page : NULL;
}

static void qtap_stream_take(struct qtap_stream *stream, struct qtap_page *page, u32 length)
{
	struct qtap_page *done = NULL;

	spin_lock_bh(&stream->lock);
	page->taken += length;
	stream->buffered -= length;
	if (!stream->buffered)
		stream->flushed = false;
	if (page->taken == QTAP_PAGE_BYTES) {
		if (stream->spare_pages < QTAP_STREAM_SPARE_PAGES) {
			list_move(&page->list, &stream->spare);
			stream->spare_pages++;
		} else {
			list_del(&page->list);
			done = page;
		}
	}
	spin_unlock_bh(&stream->lock);
	if (done)
		free_page((unsigned long)done);
}

/*
 * Blocks until a chunk is available or a flush; with O_NONBLOCK, returns the
 * available data or -EAGAIN. Data is a byte stream: a record may continue in
 * the next read.
 */
static ssize_t qtap_stream_read(struct file *file, char __user *buffer, size_t count,
				loff_t *position)
{
	struct qtap_stream *stream = &qtap_stream;
	struct qtap_page *page;
	size_t copied = 0;
	u32 length;
	int err;

again:
	if (!(file->f_flags & O_NONBLOCK)) {
		err = wait_event_interruptible(stream->wait, qtap_stream_ready(stream));
		if (err)
			return err;
	}
	err = mutex_lock_interruptible(&stream->reader);
	if (err)
		return err;
	while (copied < count && (page = qtap_stream_peek(stream, &length))) {
		length = min_t(size_t, length, count - copied);
		if (copy_to_user(buffer + copied, page->data + page->taken, length)) {
			err = -EFAULT;
			break;
		}
		qtap_stream_take(stream, page, length);
		copied += length;
	}
	mutex_unlock(&stream->reader);
	if (copied || !count)
		return copied;
	if (err)
		return err;
	if (!(file->f_flags & O_NONBLOCK))
		goto again;	/* another reader was faster */
	return -EAGAIN;
}

static __poll_t qtap_stream_poll(struct file *file, poll_table *table)
{
	poll_wait(file, &qtap_stream.wait, table);
	return qtap_stream_ready(&qtap_stream) ? EPOLLIN | EPOLLRDNORM : 0;
}

static void qtap_stream_free(struct qtap_stream *stream)
{
	struct qtap_page *page, *next;

	list_splice_init(&stream->spare, &stream->pages);
	list_for_each_entry_safe(page, next, &stream->pages, list)
		free_page((unsigned long)page);
	INIT_LIST_HEAD(&stream->pages);
}

static const struct file_operations qtap_stream_operations = {
	.owner = THIS_MODULE,
	.read = qtap_stream_read,
	.poll = qtap_stream_poll,
	.llseek = noop_llseek,
};

static struct miscdevice qtap_stream_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = QTAP_DEVICE,
	.fops = &qtap_stream_operations,
	.mode = 0400,
};

int qtap_stream_init(void)
{
	return misc_register(&qtap_stream_device);
}

void qtap_stream_exit(void)
{
	misc_deregister(&qtap_stream_device);
	qtap_stream_free(&qtap_stream);
}
