-- What all scripts of an instance share. Before each of them stand the paragraphs that it uses (see link in script.go): an empty line
-- ends one, so there is none inside of a function.
--
-- KEYS: the instance's keys in the order of keys.go, then the lane's where there is one.
-- Every script first reads and checks all it needs, then writes, since Redis does not undo a failed script: first what
-- adds to a key, then what removes from it, one removal a key. So no key is read after it may have vanished, which in a
-- Cluster slot that is migrating would be an error half-way. Each returns a table that starts with a code:
--    0 done; -1 a request older than the lane's last; -2 a key of the wrong type, its name, type and what it should be.

local call, byte, sub, match, format, floor = redis.call, string.byte, string.sub, string.match, string.format, math.floor
local jobs, runs, workers, meta, todo, doing, done, waiting,
  errors, progress, results, scheduled, dead,
  cancelled, parked, cancels, awaited, suspects, deadlines, windows, probes, locks, owners,
  stepped, children, chores, parents, outbox, lane = unpack(KEYS, 1, 29)

local HASH, ZSET = 'hash', 'zset'
local kinds = { HASH, HASH, HASH, HASH, ZSET, ZSET, ZSET, ZSET, HASH, HASH, HASH, ZSET, ZSET, ZSET, ZSET, ZSET, ZSET, ZSET,
  ZSET, ZSET, HASH, HASH, HASH, HASH, ZSET, ZSET, HASH, HASH, 'string' }

-- The sets of states by their numbers: those of a life, and what is suspected of crashing, which is todo as well. Their members are jobs,
-- but in doing the workers that hold them.
local sets = { scheduled, todo, doing, parked, done, dead, cancelled, suspects }

local live = {} -- the keys that were there when the script began: how many items each had, or the text of a string

-- What asks for the size of a key fails if it is of another type, and costs less than to ask for the type.
local sizes = { hash = 'HLEN', zset = 'ZCARD', string = 'GET' }
local function check(from, to)
  for i = from, to do
    local size = redis.pcall(sizes[kinds[i]], KEYS[i])
    if type(size) == 'table' then
      local kind = call('TYPE', KEYS[i]).ok
      if kind ~= 'none' and kind ~= kinds[i] then return { -2, KEYS[i], kind, kinds[i] } end
      call(sizes[kinds[i]], KEYS[i]) -- fails for another reason, which is the script's failure
    end
    if size and size ~= 0 then live[KEYS[i]] = size end
  end
end

-- Of the keys that an instance often does without, one command asks how many there are: the rest is checked until they are found.
local function checkRare(from, to)
  local found = call('EXISTS', unpack(KEYS, from, to))
  while found > 0 and from <= to do
    local bad = check(from, from)
    if bad then return bad end
    if live[KEYS[from]] then found = found - 1 end
    from = from + 1
  end
end

-- A foreign key in our namespace: the reply that names it, or nil when all is well. A script with other keys than the instance's
-- says what types they have; one with more of them adds theirs to kinds. Those after the last it checks by itself.
local function foreign(types, last)
  if types then
    kinds = types
    return check(1, last or #KEYS)
  end
  return check(1, 8) or checkRare(9, 23) or checkRare(24, 28) or check(29, last or #KEYS)
end

local function clock()
  local t = call('TIME')
  return t[1] * 1000 + floor(t[2] / 1000)
end

local function whole(n) return format('%d', n) end -- all are whole numbers below 2^53; %.0f takes twice as long

-- One command with a list of arguments of any length, 2,000 at a time (an even number: pairs stay together).
-- The answers are joined where they are lists, added where they are numbers.
local function many(command, key, args)
  local n = #args
  if n == 0 then return {} end
  if n <= 2000 then return call(command, key, unpack(args)) end
  local list, sum = {}, 0
  for from = 1, n, 2000 do
    local part = call(command, key, unpack(args, from, math.min(from + 1999, n)))
    if type(part) == 'table' then
      for i = 1, #part do list[#list + 1] = part[i] end
    elseif type(part) == 'number' then
      sum = sum + part
    end
  end
  if #list > 0 then return list end
  return sum
end

-- A text with other letters at some places.
local function amended(letters, others)
  if not next(others) then return letters end
  local i = 0
  return (string.gsub(letters, '.', function()
    i = i + 1
    return others[i]
  end))
end

-- The same for reading: a key that isn't there is not asked.
local function look(command, key, args)
  if live[key] then return many(command, key, args) end
  local none = {}
  for i = 1, #args do none[i] = false end
  return none
end

local function add(command, key, args)
  if #args > 0 then
    many(command, key, args)
    live[key] = true
  end
end

-- The same for a hash whose small form would be searched from end to end for each job: a field with a long value keeps
-- it in the large form.
local function grow(key, args)
  if #args == 0 then return end
  if not live[key] then call('HSET', key, '', string.rep(' ', 65)) end
  add('HSET', key, args)
end

-- Removing. An error can only be that the key has vanished, in a slot that is migrating: then there is nothing to remove.
local function drop(command, key, args)
  if not live[key] then return end
  for from = 1, #args, 2000 do
    redis.pcall(command, key, unpack(args, from, math.min(from + 1999, #args)))
  end
end

-- The answer that the lane gave to this very request, or nil when it is a new one; true, reply when it is too old. The request's number is
-- a text, here and in say.
local function said(number)
  local last = match(live[lane] or '', '^%d+')
  if last == number then return sub(live[lane], #last + 2) end
  if last and tonumber(last) > tonumber(number) then return nil, { -1 } end
end

local function say(number, answer) call('SET', lane, number .. ' ' .. answer, 'PX', '3600000') end

-- Places. See keys.go for the layout.
local TOP, EPOCH = 900000000000000, 946684800000 -- 9*10^14; 2000-01-01 in milliseconds
local NOWHERE = '0000000000000000' -- in the record of a job that was not todo at first

-- The sequence number that follows the last.
local function following(last, now) return math.max((tonumber(last or 0) or 0) + 1, (now - EPOCH) * 256) end

-- The first run of a job whose record is short is kept in that, so that it costs no line in runs: a 2 for the 1, since when,
-- the worker. A line in runs counts before it; what is begun again has one.
local SHORT = 1024 -- bytes; part of the format
local function ranIn(record)
  return record and byte(record, 1) == 50 and '1 0 ' .. sub(record, 44, 59) .. ' ' .. sub(record, 2, 14) .. ' ' .. sub(record, 15, 30)
end

-- A job's latest run; false when it never ran. Its record is read, where it is not given, only if it is short.
local function runOf(id, record)
  return live[runs] and call('HGET', runs, id) or ranIn(record or call('HSTRLEN', jobs, id) <= SHORT + 29 and call('HGET', jobs, id))
end

-- The worker that holds a job, and its lease; nil if none does.
local function holderOf(id)
  local worker = live[workers] and match(runOf(id) or '', '^%d+ %d+ %d+ %d+ (.*)$')
  local lease = worker and call('HGET', workers, worker)
  if lease and sub(lease, 1, 16) == id then return worker, lease end
end

-- The jobs that workers hold; '' for a worker that holds none.
local function heldBy(names)
  local leases = look('HMGET', workers, names)
  for i = 1, #names do leases[i] = sub(leases[i] or '', 1, 16) end
  return leases
end

-- Reserves n sequence numbers and returns the first.
local function reserve(n, now)
  local first = following(call('HGET', meta, 'seq'), now)
  call('HSET', meta, 'seq', whole(first + n - 1))
  return first
end

-- Says something on a channel and returns how many heard it. A user who may not, by the server's rules, must not lose a
-- write for it: then nobody hears, and those who wait look by themselves in time.
local function publish(channel, message)
  local heard = redis.pcall('PUBLISH', channel, message)
  return type(heard) == 'number' and heard or 0
end

-- Wakes up to n of the processes that wait for work, those that asked first; one that no longer listens counts for none. All
-- of them, and the one that is named, no longer wait then.
local function wake(n, leaver)
  if not live[waiting] then return end
  local leave, heard, from = { leaver }, 0, 0
  local message = 'wake ' .. match(jobs, '{(.*)}')
  -- A node of a Cluster counts only who listens at it, though the others hear it, too. There a process that was not counted is taken to
  -- listen if it has asked for work within 10 s: the runtime does so every 5.
  local clustered
  local function elsewhere(waiter)
    if clustered == nil then
      local info = redis.pcall('INFO', 'cluster')
      clustered = type(info) == 'string' and match(info, 'cluster_enabled:1') ~= nil
    end
    return clustered and clock() - call('ZSCORE', waiting, waiter) < 10000
  end
  while heard < n and from < 1000 do
    local some = call('ZRANGE', waiting, from, from + math.min(n - heard, 100) - 1)
    if #some == 0 then break end
    for i = 1, #some do
      if some[i] ~= leaver then
        leave[#leave + 1] = some[i]
        local here = publish(some[i], message)
        heard = heard + (here == 0 and elsewhere(some[i]) and 1 or here)
      end
    end
    from = from + #some
  end
  drop('ZREM', waiting, leave)
end

-- An id in hex: six, six and four bytes make numbers below 2^53.
local function hex(id)
  if #id ~= 16 then return 'none' end
  local a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p = byte(id, 1, 16)
  return format('%012x%012x%08x', ((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f,
    ((((g * 256 + h) * 256 + i) * 256 + j) * 256 + k) * 256 + l, ((m * 256 + n) * 256 + o) * 256 + p)
end

local function channel(kind, id) return match(jobs, '^(.-):{') .. ':' .. kind .. ':' .. hex(id) end

-- Uniqueness. owners: id -> mode, key. locks: key -> mode, id, and in a window the time when it ends. The modes: c until
-- claimed, d until done, t until terminal, w for a window.

-- Gives up the keys that these jobs own in one of the modes.
local function unlock(ids, modes)
  if not live[owners] or not live[locks] or #ids == 0 then return end
  -- One of them may have vanished since, in a slot that is migrating: then nothing is locked.
  if redis.pcall('EXISTS', owners) ~= 1 or redis.pcall('EXISTS', locks) ~= 1 then return end
  local owned, keys, mine = many('HMGET', owners, ids), {}, {}
  for i = 1, #ids do
    if owned[i] and string.find(modes, sub(owned[i], 1, 1), 1, true) then
      keys[#keys + 1] = sub(owned[i], 2)
      mine[#mine + 1] = ids[i]
    end
  end
  if #keys == 0 then return end
  local holders, free = many('HMGET', locks, keys), {}
  for i = 1, #keys do
    if holders[i] and sub(holders[i], 2, 17) == mine[i] then free[#free + 1] = keys[i] end
  end
  drop('HDEL', locks, free)
end

-- The id of another job that has the key, or nil.
local function holder(key, id, now)
  local lock = live[locks] and call('HGET', locks, key)
  if not lock then return end
  local mode, other = sub(lock, 1, 1), sub(lock, 2, 17)
  if other == id then return end
  if mode == 'w' then
    if (tonumber(sub(lock, 18)) or 0) > now then return other end
  elseif call('HEXISTS', jobs, other) == 1 then
    return other
  end
end

-- Takes jobs that are new, so that they can be run. records: in turns an id and the record less version, time and place, which accept puts
-- before it. If there are details, ranks, times and limits have for each job, where they are not rank, now and none: its 10 - priority, when to
-- run (see enqueue.lua), its deadline in ms. Returns 1 if the instance may be new, else 0.
local DIGITS = { [0] = '0', '1', '2', '3', '4', '5', '6', '7', '8', '9' }
local function accept(now, records, rank, ranks, times, limits)
  local notes = call('HMGET', meta, 'maxrec', 'paused', 'seq')
  local places, dues, ends = { unpack(records) }, {}, {} -- places: of the size it may need, which costs less than to grow
  local head, longest, claimable, filled, soonest = format('1%013d', now), 0, 0, 0, nil
  local from = following(notes[3], now)
  local seq = from
  local tens, printed = nil, nil -- the last place less its last digit, and that one's rank: to print each anew takes ten times as long
  for i = 1, #records, 2 do
    local id, rank, due, place = records[i], rank, nil, NOWHERE
    if ranks then
      local k = (i + 1) / 2
      rank, due = tonumber(ranks[k] or rank), times[k]
      if limits[k] then
        ends[#ends + 1] = limits[k]
        ends[#ends + 1] = id
      end
      if due then
        due = tonumber(due)
        if due < 0 then due = now - due end
      end
    end
    if not due or due <= now then
      local digit = seq % 10
      if digit == 0 or printed ~= rank then tens, printed = format('%015d', (rank * TOP + seq - digit) / 10), rank end
      place = tens .. DIGITS[digit]
      seq = seq + 1
      filled = filled + 2
      places[filled - 1], places[filled] = place, id
    else
      due = due * 16 + rank
      dues[#dues + 1] = whole(due)
      dues[#dues + 1] = id
      if not soonest or due < soonest then soonest = due end
    end
    local record = head .. place .. records[i + 1]
    if #record > longest then longest = #record end
    records[i + 1] = record
  end
  for i = #places, filled + 1, -1 do places[i] = nil end
  claimable = filled / 2
  if soonest then -- one who waits, and gets none of the others, has to look again if it is the first of all
    local first = live[scheduled] and call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')[2]
    if not first or soonest < tonumber(first) then claimable = claimable + 1 end
  end
  if seq > from then call('HSET', meta, 'seq', whole(seq - 1)) end
  add('HSET', jobs, records)
  add('ZADD', deadlines, ends)
  add('ZADD', todo, places)
  add('ZADD', scheduled, dues)
  if longest > (tonumber(notes[1] or 0) or 0) then call('HSET', meta, 'maxrec', longest) end
  if not notes[2] then wake(claimable) end
  return notes[3] and 0 or 1
end

-- The record of a tick: a letter for what became of it (d dispatched, h dispatched by hand, s skipped, f failed), the tick, the first of
-- those that it stands for, when that was decided, by whom, the job if there is one, the reason if there is one.
local function decided(letter, tick, first, now, node, job, reason)
  return letter .. ' ' .. tick .. ' ' .. first .. ' ' .. whole(now) .. ' ' .. #node .. ' ' .. node .. job .. reason
end

-- Further ahead than this, in ms, no tick is decided unless the clock has gone back since.
local AHEAD = 3600000

-- The latest tick that counts as decided where all until now are nobody's.
local function nobodys(high, now)
  high = tonumber(high)
  return whole(high > now + AHEAD and now or math.max(high, now))
end

-- The record that stands for a tick, its letter first: the tick's own or, where many were skipped together, that of all. It looks at 1,000
-- later ones at most; for the tick that is due now there are none. What was skipped by a clock that has gone back since does not stand:
-- of the tick's own record no letter is told then, for it is to be replaced.
local function standing(records, tick, now)
  if not live[records] then return end
  local void
  for from = 0, 900, 100 do
    local some = call('ZRANGE', records, tick, '+inf', 'BYSCORE', 'LIMIT', from, 100)
    for i = 1, #some do
      local letter, own, first, at = match(some[i], '^([dsf]) (%d+) (%d+) (%d+) ')
      if letter == 's' and tonumber(at) > now then
        if own == tick then void = some[i] end
      elseif letter and tonumber(first) <= tonumber(tick) then
        return letter, some[i]
      end
    end
    if #some < 100 then break end
  end
  return nil, void
end

-- What an entry's jobs are made of: their deadline, in ms or '', and their record less its head; nil if that can't be read.
local function madeOf(template)
  local by = match(template or '', '^(%d*) [1-:]')
  if by then return by, sub(template, #by + 2) end
end

-- Removes what the bounds of an entry, in ms and in number, no longer keep of its records. What was written now, from the tick first on, is
-- not too old, whenever its tick was.
local function bound(records, age, count, now, first)
  local over = math.max(call('ZCARD', records) - count, call('ZCOUNT', records, '-inf', whole(math.min(now - age, first - 1))))
  if over > 0 then drop('ZREMRANGEBYRANK', records, { 0, over - 1 }) end
end

-- Turns the deadlines of jobs on, for those that wait, or off, for those that run: a negative score is never due.
local function mind(ids, on)
  local scores, set = look('ZMSCORE', deadlines, ids), {}
  for i = 1, #ids do
    if scores[i] then
      set[#set + 1] = whole(on and math.abs(scores[i]) or -math.abs(scores[i]))
      set[#set + 1] = ids[i]
    end
  end
  add('ZADD', deadlines, set)
end

-- Steps; their records are described in steps.go. A job that has any is in stepped: its generation, its epoch, the last number
-- given to a record, how many records there are, their bytes, how many of these it may have, how many children are open.
local GRACE, NEVER = 10000, 4503599627370496 -- ms before a child, or an outcome, is looked after; in parked: no time wakes it

-- When to look after something in about so many ms, not later, a sixteenth or a second earlier at most: so what falls due at about the same
-- time falls due together, and is one pass of the sweeper. That holds for what is looked after more and less often alike, since
-- each moment of a coarse grid is one of the finer ones.
local function about(now, ms)
  local at, grid = now + ms, 1000
  while grid * 32 <= ms do grid = grid * 2 end
  return whole(at - at % grid)
end

local function parse(text)
  local h = { match(text, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$') }
  for i = 1, 7 do h[i] = tonumber(h[i]) or 0 end
  return h
end

local function head(id)
  local text = live[stepped] and call('HGET', stepped, id)
  return text and parse(text) or nil
end

local function headed(h) return format('%d %d %d %d %d %d %d', unpack(h)) end

local RECORDS = sub(jobs, 1, -5) .. 'step_result:'
local function recordsKey(id) return RECORDS .. hex(id) end

-- The key of a job's step records, and the reply that names it if it is foreign.
local function recordsOf(id)
  local key = recordsKey(id)
  local kind = call('TYPE', key).ok
  if kind ~= 'none' and kind ~= HASH then return key, { -2, key, kind, HASH } end
  return key
end

-- Whether a job that wants to park has to, given what it waits for: z, the time in ms; a, all of the steps, or the first that fails;
-- y, any of them; each followed by a line a name. Returns p or t, the score in parked, its records' key and what is to be noted there.
local function parking(id, spec, nonce, now)
  local mode, till, names = match(spec, '^(.)(%d*)\n(.*)$')
  local key, bad = recordsOf(id)
  if bad or not head(id) then return 't' end
  if mode == 'z' then
    till = tonumber(till)
    return till > now and 'p' or 't', whole(till), key, { '\1', nonce .. '0 z ' .. names }
  end
  local all, notes, left, ready, first = {}, {}, 0, false, nil
  local named = {} -- a step may be named twice, and comes once
  for name in string.gmatch(names, '[^\n]+') do
    if not named[name] then all[#all + 1] = name end
    named[name] = true
  end
  local records = many('HMGET', key, all)
  for i = 1, #all do
    local letter = sub(records[i] or '', 1, 1)
    if letter == 'd' then
      left = left + 1
      first = first or all[i]
      notes[#notes + 1] = '\1' .. all[i]
      notes[#notes + 1] = nonce
    elseif mode == 'y' or letter == 'f' then
      ready = true
    end
  end
  if left == 0 or ready then return 't' end
  notes[#notes + 1] = '\1'
  notes[#notes + 1] = nonce .. whole(left) .. ' ' .. mode .. ' ' .. first
  return 'p', whole(NEVER + now), key, notes
end

-- Makes parked jobs todo, at the places they had.
local function unpark(ids, now)
  local places, ran = {}, look('HMGET', runs, ids)
  for i = 1, #ids do
    local place = match(ran[i] or '', '^%d+ %d+ (%d+) ')
    if not place or place == '0' then place = whole(5 * TOP + reserve(1, now)) end
    places[#places + 1] = place
    places[#places + 1] = ids[i]
  end
  add('ZADD', todo, places)
  mind(ids, true)
  drop('ZREM', parked, ids)
end

-- ms until something here wakes by its time or has to be looked after, -1 if nothing has.
local function due(now)
  local first = NEVER
  for _, set in ipairs({ parked, chores }) do
    local one = live[set] and call('ZRANGE', set, 0, 0, 'WITHSCORES') or {}
    if one[2] then first = math.min(first, tonumber(one[2])) end
  end
  return first < NEVER and math.max(0, first - now) or -1
end

local tasks = 0 -- how many jobs there were, in this call, of whose end the sweeper has to tell parents or children at once

-- Puts the outcomes of children that have ended into the outbox, from where they go to their parents: at once, or after a while, if
-- their worker brings them there itself. The fate: d done, g gone, x dead or cancelled. What they ended with has been written already.
local function owe(ids, fate, now, wait)
  local refs = look('HMGET', parents, ids)
  local kin, out, work = {}, {}, {}
  for i = 1, #ids do
    if refs[i] then kin[#kin + 1] = { ids[i], refs[i] } end
  end
  for i = 1, #kin do
    local id, ref, letter = kin[i][1], kin[i][2], fate
    local from = fate == 'd' and results or errors
    local text = fate ~= 'g' and live[from] and call('HGET', from, id) or ''
    if fate == 'x' and live[cancelled] and call('ZSCORE', cancelled, id) then letter = 'c' end
    out[#out + 1] = id
    out[#out + 1] = letter .. #ref .. ' ' .. ref .. text
    work[#work + 1] = whole(now + (wait or 0))
    work[#work + 1] = 'r' .. id
  end
  if not wait then tasks = tasks + #kin end
  add('HSET', outbox, out)
  add('ZADD', chores, work)
end

-- Notes for the sweeper that the open children of these jobs, up to their present generation, are to be cancelled (c), also those that were
-- to be left to themselves and were not yet, or left to themselves (d).
local function stray(ids, fate, now)
  local heads, work, other = look('HMGET', stepped, ids), {}, {}
  for i = 1, #ids do
    local gen, open = match(heads[i] or '', '^(%d+) .* (%d+)$')
    if gen and open ~= '0' then
      work[#work + 1] = whole(now)
      work[#work + 1] = 's' .. fate .. ids[i] .. format('%06d', tonumber(gen))
      if fate == 'c' then other[#other + 1] = 'sd' .. ids[i] .. format('%06d', tonumber(gen)) end
      tasks = tasks + 1
    end
  end
  add('ZADD', chores, work)
  drop('ZREM', chores, other)
end

-- What the end of jobs means for their parents and children, keys and deadlines. completed: whether they are done; wait: see owe.
local function close(ids, completed, now, wait)
  if #ids == 0 then return end
  if live[parents] then owe(ids, completed and 'd' or 'x', now, wait) end
  if live[stepped] then stray(ids, completed and 'd' or 'c', now) end
  unlock(ids, completed and 'cdt' or 'ct')
  drop('ZREM', deadlines, ids)
end

-- Whether a job has children, of any generation or of those before one, that the sweeper has still to cancel or to let go.
local function leaves(id, gen)
  local to = '(' .. id .. (gen and format('%06d', gen) or ':')
  return live[children] and #redis.pcall('ZRANGEBYLEX', children, '[' .. id .. '0', to, 'LIMIT', 0, 1) > 0
end

-- The same, of any generation, given its entry in stepped, which spares most the look: those of a first generation are all counted as open.
local function familiar(id, text) return not match(text, '^0 .* 0$') and leaves(id) end

-- Adds to a list of chores what may be noted of a job's children, up to a generation.
local function straysOf(list, id, gen)
  for g = 0, math.min(gen, 99) do
    list[#list + 1] = 'sc' .. id .. format('%06d', g)
    list[#list + 1] = 'sd' .. id .. format('%06d', g)
  end
end

-- Removes all that is kept of the jobs, but for their places in the sets of states. Of one that leaves children behind a head without records
-- stays until the sweeper has seen to them: so a job that is enqueued under its id has a later generation, and children of its own. Of one
-- whose children have all been seen to no note stays either, which would speak of these.
local function erase(ids)
  drop('HDEL', jobs, ids)
  drop('HDEL', runs, ids)
  drop('HDEL', errors, ids)
  drop('HDEL', progress, ids)
  drop('HDEL', results, ids)
  unlock(ids, 'cdt')
  drop('HDEL', owners, ids)
  drop('HDEL', parents, ids)
  if not live[stepped] then return end
  local had, heads, gone, notes = look('HMGET', stepped, ids), {}, {}, {}
  for i = 1, #ids do
    local id = ids[i]
    if had[i] then redis.pcall('UNLINK', recordsKey(id)) end
    if had[i] and familiar(id, had[i]) then
      heads[#heads + 1] = id
      heads[#heads + 1] = headed({ parse(had[i])[1] + 1, 0, 0, 0, 0, 0, 0 })
    elseif had[i] then
      gone[#gone + 1] = id
      straysOf(notes, id, parse(had[i])[1])
    end
  end
  add('HSET', stepped, heads)
  drop('HDEL', stepped, gone)
  drop('ZREM', chores, notes)
end

-- Removes what is left of steps under the ids of jobs that are about to be accepted: of ones that went with their instance (see remove.lua).
local function vacate(ids)
  local had, gone = look('HMGET', stepped, ids), {}
  for i = 1, #ids do
    if had[i] and parse(had[i])[3] > 0 then
      gone[#gone + 1] = ids[i]
      redis.pcall('UNLINK', recordsKey(ids[i]))
    end
  end
  drop('HDEL', stepped, gone)
end

-- The jobs among ids that somebody waits for: a set, or nil.
local function wanted(ids, now)
  if not live[awaited] or #ids == 0 then return end
  local until_, set = many('ZMSCORE', awaited, ids), nil
  for i = 1, #ids do
    if until_[i] and tonumber(until_[i]) >= now then
      set = set or {}
      set[ids[i]] = true
    end
  end
  return set
end

-- Tells those who wait that these jobs have ended.
local function tell(ids, set)
  if not set then return end
  for i = 1, #ids do
    if set[ids[i]] then publish(channel('ended', ids[i]), 'ended') end
  end
end

-- The jobs that retention no longer keeps in an ending state, at most so many: those beyond count and those that ended
-- age ms ago or earlier; -1 is no bound. A job that somebody waits for stays a minute, a child until its
-- parent has its outcome, a parent until its children have been seen to.
local function outlived(state, count, age, now, most)
  local over = count < 0 and 0 or call('ZCARD', state) - count
  if age >= 0 then over = math.max(over, call('ZCOUNT', state, '-inf', whole(now - age))) end
  if over > 0 and not (live[outbox] or live[awaited] or live[children]) then return call('ZRANGE', state, 0, math.min(over, most) - 1) end
  local gone = {}
  local function page(from)
    local ids = call('ZRANGE', state, from, math.min(over, from + most - #gone) - 1)
    local set, owed, heads = wanted(ids, now), look('HMGET', outbox, ids), live[children] and look('HMGET', stepped, ids) or {}
    local ended = set and call('ZMSCORE', state, unpack(ids))
    for i = 1, #ids do
      local stays = owed[i] or set and set[ids[i]] and tonumber(ended[i]) > now - 60000 or heads[i] and familiar(ids[i], heads[i])
      if not stays then gone[#gone + 1] = ids[i] end
    end
    return #ids
  end
  local from = 0
  for _ = 1, 10 do -- those that stay must not stand before the others for ever
    if from >= over or #gone >= most then return gone end
    from = from + page(from)
  end
  if #gone == 0 and from < over then page(from + now % (over - from)) end -- they are many: elsewhere each time
  return gone
end

-- Removes from an ending state what outlived returned: mostly its first, which costs less than to look for each.
local function trim(state, gone)
  if #gone == 0 then return end
  local last = call('ZRANGE', state, #gone - 1, #gone - 1)
  if last[1] == gone[#gone] then
    call('ZREMRANGEBYRANK', state, 0, #gone - 1)
  else
    many('ZREM', state, gone)
  end
end

-- Which state a job is in (1 scheduled ... 7 cancelled), its set and its score there; nil when it is in none.
local function whereabouts(id)
  for i = 1, #sets do
    local score = i ~= 3 and live[sets[i]] and call('ZSCORE', sets[i], id)
    if score then return i == 8 and 2 or i, sets[i], score end
  end
  local worker = holderOf(id)
  if worker then return 3, doing, live[doing] and call('ZSCORE', doing, worker) or '0' end
end

-- The jobs in all sets together, and those that can be claimed.
local function total()
  local n = 0
  for i = 1, #sets do n = n + call('ZCARD', sets[i]) end
  return n
end

-- What stands in for a record that is missing: it can be listed, and says of itself that it can't be run.
local function stub(now) return '1' .. format('%013d', now) .. NOWHERE .. '5x\0\0null' end

-- 10 - priority of a job, from its record, which is returned as well; if that is long, from its last place, so that it need not be read.
local function rankOf(id)
  local place = match(live[runs] and call('HGET', runs, id) or '', '^%d+ %d+ (%d+) ')
  if place and place ~= '0' and call('HSTRLEN', jobs, id) > SHORT then return floor(tonumber(place) / TOP) end
  local record = call('HGET', jobs, id)
  local at = record and ({ [49] = 31, [50] = 60 })[byte(record, 1)]
  local priority = at and (byte(record, at) or 0) - 48
  return priority and priority >= 1 and priority <= 10 and 10 - priority or 5, record
end

-- Since when a job has been in an ending state, or todo, by its score there, in ms.
local function since(set, score)
  if set == todo or set == suspects then return floor(tonumber(score) % TOP / 256) + EPOCH end
  return tonumber(score)
end
