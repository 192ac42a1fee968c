// Icons from Lucide, drawn by name. Only those that are imported here are in the bundle.
import { h } from "preact";
import {
  Activity, ArrowDown, ArrowUp, Ban, Bell, Box, Braces, Camera, Check, CircleAlert, CircleCheck, CircleDashed, CircleHelp, CirclePause,
  Circle, CircleX, ClipboardCopy, Clock, Copy, Cpu, Download, EllipsisVertical, ExternalLink, FileText, Gauge, HardDrive, Image,
  Info, Key, Keyboard, LayoutGrid, LoaderCircle, LogOut, Menu, Monitor, Moon, Network, OctagonX, Pause, Pencil, Play, Plus, Power,
  RefreshCw, RotateCcw, Search, Server, Settings, SquareTerminal, Sun, Trash2, TriangleAlert, Upload, User, Users, X, Zap, Maximize,
  Layers, Sprout, ArrowRightLeft, Wrench, LifeBuoy, Puzzle, ListChecks, History,
} from "lucide";

const ICONS = {
  activity: Activity, down: ArrowDown, up: ArrowUp, ban: Ban, bell: Bell, box: Box, braces: Braces, camera: Camera, check: Check,
  alert: CircleAlert, ok: CircleCheck, waiting: CircleDashed, help: CircleHelp, paused: CirclePause, off: Circle, failed: CircleX,
  clipboard: ClipboardCopy, clock: Clock, copy: Copy, cpu: Cpu, download: Download, more: EllipsisVertical, external: ExternalLink,
  file: FileText, gauge: Gauge, disk: HardDrive, image: Image, info: Info, key: Key, keyboard: Keyboard, overview: LayoutGrid,
  spinner: LoaderCircle, logout: LogOut, menu: Menu, monitor: Monitor, moon: Moon, network: Network, stop: OctagonX, pause: Pause,
  edit: Pencil, play: Play, plus: Plus, power: Power, refresh: RefreshCw, undo: RotateCcw, search: Search, server: Server,
  settings: Settings, terminal: SquareTerminal, sun: Sun, trash: Trash2, warning: TriangleAlert, upload: Upload, user: User,
  users: Users, close: X, zap: Zap, maximize: Maximize, layers: Layers, sprout: Sprout, move: ArrowRightLeft,
  wrench: Wrench, support: LifeBuoy, puzzle: Puzzle, tasks: ListChecks, history: History,
};

export type IconName = keyof typeof ICONS;

export function Icon({ name, spin = false }: { name: IconName; spin?: boolean }) {
  const attributes = {
    class: spin ? "icon spin" : "icon",
    viewBox: "0 0 24 24",
    fill: "none",
    stroke: "currentColor",
    "stroke-width": 2,
    "stroke-linecap": "round",
    "stroke-linejoin": "round",
    "aria-hidden": true,
  };
  const parts = ICONS[name] as [string, Record<string, string>][];
  return h("svg", attributes, parts.map(([tag, own]) => h(tag, own)));
}
